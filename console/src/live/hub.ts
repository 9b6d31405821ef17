// Hands the events of one reader to all tabs. It keeps the last events, so that a tab that has listed something continues from
// the position of its listing.

import { passes, type Filter, type FromTab, type LiveEvent, type LiveState, type Port, type ToTab } from './protocol'

const KEPT = 10_000
/** Events are handed on in batches: one message for each tab instead of one for each event. */
const BATCH_MS = 16

interface Follower {
  port: Port
  id: number
  filter: Filter
  /** Sequence up to which the tab has everything; null means from now on. */
  after: number | null
}

export class Hub {
  private kept: LiveEvent[] = []
  /** All events after this sequence are in `kept`; null before the stream is open. */
  private from: number | null = null
  private last = 0
  private state: LiveState = { status: 'connecting', since: Date.now(), position: null }
  private readonly ports = new Set<Port>()
  private readonly followers = new Map<Port, Map<number, Follower>>()
  /** Tabs that follow "from now on" before the stream is open. */
  private early: Follower[] = []
  private timer: ReturnType<typeof setTimeout> | null = null

  constructor(
    private readonly reader: { retry(): void; reset(): void },
    private readonly limit = KEPT,
  ) {}

  get size(): number {
    return this.ports.size
  }

  connect(port: Port): void {
    this.ports.add(port)
    port.send({ kind: 'state', state: this.state })
  }

  disconnect(port: Port): void {
    this.ports.delete(port)
    this.followers.delete(port)
    this.early = this.early.filter((follower) => follower.port !== port)
  }

  receive(port: Port, message: FromTab): void {
    if (message.kind === 'bye') this.disconnect(port)
    else if (message.kind === 'retry') this.reader.retry()
    else if (message.kind === 'reset') this.reset()
    else if (message.kind === 'unfollow') {
      this.followers.get(port)?.delete(message.id)
      this.early = this.early.filter((follower) => follower.port !== port || follower.id !== message.id)
    } else this.follow({ port, id: message.id, filter: message.filter, after: message.after })
  }

  setState(state: LiveState): void {
    this.state = state
    if (this.from === null && state.position !== null) {
      this.from = this.last = state.position
      const early = this.early
      this.early = []
      for (const follower of early) {
        // The page has loaded at an unknown position, so it loads once more.
        follower.after ??= -1
        this.follow(follower)
      }
    }
    this.broadcast({ kind: 'state', state })
  }

  push(events: LiveEvent[]): void {
    if (events.length === 0) return
    for (const event of events) this.kept.push(event)
    this.last = events[events.length - 1]!.seq
    if (this.kept.length > this.limit) {
      const dropped = this.kept.splice(0, this.kept.length - Math.floor(this.limit * 0.75))
      this.from = dropped[dropped.length - 1]!.seq
    }
    this.timer ??= setTimeout(() => {
      this.timer = null
      this.deliver()
    }, BATCH_MS)
  }

  /** The stream has lost events: what is kept no longer joins, and every tab loads again. */
  gap(to: number): void {
    this.kept = []
    this.from = this.last = to
    this.each((follower) => {
      follower.after = to
      follower.port.send({ kind: 'gap', id: follower.id, to })
    })
  }

  /** Followers load again when the stream is open again. */
  private reset(): void {
    this.kept = []
    this.from = null
    this.each((follower) => this.early.push({ ...follower, after: -1 }))
    this.followers.clear()
    this.reader.reset()
  }

  private follow(follower: Follower): void {
    if (this.from === null) {
      this.early.push(follower)
      return
    }
    let of = this.followers.get(follower.port)
    if (!of) this.followers.set(follower.port, (of = new Map()))
    of.set(follower.id, follower)
    if (follower.after === null) {
      follower.after = this.last
      follower.port.send({ kind: 'following', id: follower.id })
    } else if (follower.after < this.from) {
      follower.after = this.last
      follower.port.send({ kind: 'gap', id: follower.id, to: this.last })
    } else this.send(follower)
  }

  private deliver(): void {
    this.each((follower) => this.send(follower))
  }

  private send(follower: Follower): void {
    const after = follower.after ?? this.last
    const events = this.after(after).filter((event) => passes(follower.filter, event))
    follower.after = Math.max(after, this.last)
    if (events.length > 0) follower.port.send({ kind: 'events', id: follower.id, events })
  }

  private after(seq: number): LiveEvent[] {
    let low = 0
    let high = this.kept.length
    while (low < high) {
      const middle = (low + high) >> 1
      if (this.kept[middle]!.seq <= seq) low = middle + 1
      else high = middle
    }
    return this.kept.slice(low)
  }

  private each(action: (follower: Follower) => void): void {
    for (const of of this.followers.values()) for (const follower of of.values()) action(follower)
  }

  private broadcast(message: ToTab): void {
    for (const port of this.ports) port.send(message)
  }
}
