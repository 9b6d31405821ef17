// The live side of a tab: whether it is live, and following events.

import { connect, type Connection } from './connection'
import type { Filter, LiveEvent, LiveState, ToTab } from './protocol'

export interface Following {
  /** Resolves when events are being collected: a page that loads after it misses nothing. */
  ready: Promise<void>
  stop(): void
}

export interface FollowOptions {
  /** Sequence up to which the page has everything (`as_of` of a listing). Without it: from now on. */
  after?: number | null
  filter?: Filter
  /** Called at most once in a frame of the display, with all events since the last call. */
  onEvents(events: LiveEvent[]): void
  /** Events are missing: load again. */
  onGap(): void
}

interface Entry {
  options: FollowOptions
  after: number | null
  waiting: LiveEvent[]
  ready: () => void
}

/** While no reader answers, a page does not wait longer than this for `ready`. A gap follows then. */
const PATIENCE = 250

class Live {
  state = $state.raw<LiveState>({ status: 'connecting', since: Date.now(), position: null })
  private connection: Connection | null = null
  private readonly entries = new Map<number, Entry>()
  private next = 1
  private frame: number | ReturnType<typeof setTimeout> | null = null

  start(): void {
    if (this.connection) return
    this.connection = connect()
    this.connection.onmessage = (message) => this.receive(message)
    this.connection.onreader = () => {
      for (const [id, entry] of this.entries) {
        this.connection?.send({ kind: 'follow', id, after: entry.after ?? -1, filter: entry.options.filter ?? {} })
      }
    }
  }

  /** Another attempt now, after signing in or when the user asks for it. */
  retry(): void {
    this.connection?.send({ kind: 'retry' })
  }

  /** The user has signed out: no tab keeps reading with the old login. */
  reset(): void {
    this.connection?.send({ kind: 'reset' })
  }

  follow(options: FollowOptions): Following {
    const id = this.next++
    let ready = () => {}
    const whenReady = new Promise<void>((done) => (ready = done))
    const after = options.after ?? null
    this.entries.set(id, { options, after, waiting: [], ready })
    if (after !== null) ready()
    else setTimeout(ready, PATIENCE)
    this.connection?.send({ kind: 'follow', id, after, filter: options.filter ?? {} })
    return {
      ready: whenReady,
      stop: () => {
        this.entries.delete(id)
        this.connection?.send({ kind: 'unfollow', id })
      },
    }
  }

  private receive(message: ToTab): void {
    if (message.kind === 'state') {
      this.state = message.state
      return
    }
    const entry = this.entries.get(message.id)
    if (!entry) return
    if (message.kind === 'following') entry.ready()
    else if (message.kind === 'gap') {
      entry.waiting = []
      entry.after = message.to
      entry.ready()
      entry.options.onGap()
    } else {
      entry.waiting.push(...message.events)
      entry.after = message.events[message.events.length - 1]?.seq ?? entry.after
      this.schedule()
    }
  }

  private schedule(): void {
    if (this.frame !== null) return
    const flush = () => {
      this.frame = null
      for (const entry of this.entries.values()) {
        if (entry.waiting.length === 0) continue
        const events = entry.waiting
        entry.waiting = []
        entry.options.onEvents(events)
      }
    }
    // A hidden tab has no frames; its title and sounds still follow the events.
    this.frame = document.hidden ? setTimeout(flush, 200) : requestAnimationFrame(flush)
    if (!document.hidden) {
      const frame = this.frame
      setTimeout(() => {
        if (this.frame === frame) flush()
      }, 500)
    }
  }
}

export const live = new Live()
