// Reads the stream of events of all sessions, and reconnects: after the last event that it has read, with a growing pause.

import type { Schema } from '$/api'
import { batches, type Frame } from '$/api/sse'
import type { EventType, LiveEvent, LiveState } from './protocol'

/** Comments come every 15 s: a connection that is silent for longer is dead. */
const SILENCE = 40_000
const PAUSES = [250, 500, 1000, 2000, 5000, 10_000]
/** Pause after a response that another attempt will hardly change. */
const LONG_PAUSE = 30_000

export interface ReaderHooks {
  state(state: LiveState): void
  events(events: LiveEvent[]): void
  gap(from: number, to: number): void
}

export interface ReaderOptions {
  address: string
  fetch?: typeof fetch
  silence?: number
  pauses?: number[]
  now?: () => number
}

export class Reader {
  private position: number | null = null
  private current: LiveState
  private failures = 0
  private stopped = false
  private wake: (() => void) | null = null
  private abort: AbortController | null = null

  constructor(
    private readonly hooks: ReaderHooks,
    private readonly options: ReaderOptions,
  ) {
    this.current = { status: 'connecting', since: this.now(), position: null }
  }

  get state(): LiveState {
    return { ...this.current, position: this.position }
  }

  async run(): Promise<void> {
    while (!this.stopped) {
      const pause = await this.attempt()
      if (this.stopped) return
      await new Promise<void>((done) => {
        const timer = setTimeout(done, pause)
        this.wake = () => {
          clearTimeout(timer)
          done()
        }
      })
    }
  }

  stop(): void {
    this.stopped = true
    this.abort?.abort()
    this.wake?.()
  }

  /** Ends a pause. */
  retry(): void {
    this.failures = 0
    this.wake?.()
  }

  /** Ends the connection of a login that has ended, and forgets its position. */
  reset(): void {
    this.position = null
    this.failures = 0
    this.abort?.abort()
    this.wake?.()
  }

  /** One connection until it ends. Returns the pause before the next one in ms. */
  private async attempt(): Promise<number> {
    this.abort = new AbortController()
    const { signal } = this.abort
    let watch: ReturnType<typeof setTimeout> | undefined
    const alive = () => {
      clearTimeout(watch)
      watch = setTimeout(() => this.abort?.abort(), this.options.silence ?? SILENCE)
    }
    try {
      alive()
      const url = this.position === null ? this.options.address : `${this.options.address}?after=${this.position}`
      const read = this.options.fetch ?? fetch
      const response = await read(url, { headers: { accept: 'text/event-stream' }, credentials: 'same-origin', signal })
      if (response.status === 401) return this.fail('signed_out', LONG_PAUSE)
      if (response.status === 404 || response.status === 403) return this.fail('unsupported', LONG_PAUSE)
      if (!response.ok || !response.body) return this.fail('offline')
      for await (const frames of batches(response.body, alive)) {
        if (signal.aborted) break
        this.take(frames)
      }
    } catch {
      // Unreachable, cut off or silent: in each case another attempt follows.
    } finally {
      clearTimeout(watch)
    }
    return this.fail('offline')
  }

  private take(frames: Frame[]): void {
    let events: LiveEvent[] = []
    const flush = () => {
      if (events.length > 0) this.hooks.events(events)
      events = []
    }
    for (const frame of frames) {
      if (frame.event === 'open') {
        const opened = parse<Schema<'EventsOpened'>>(frame.data)
        if (!opened) continue
        this.position ??= opened.as_of
        this.failures = 0
        this.set('live')
      } else if (frame.event === 'gap') {
        const gap = parse<Schema<'EventGap'>>(frame.data)
        if (!gap) continue
        flush()
        // Lower than the position if the stream of events was replaced: its sequences begin at 1 again.
        this.position = gap.to
        this.hooks.gap(gap.from, gap.to)
      } else {
        const located = parse<Schema<'LocatedEvent'>>(frame.data)
        const seq = Number(frame.id)
        if (!located || !Number.isFinite(seq) || (this.position !== null && seq <= this.position)) continue
        this.position = seq
        events.push({ ...located, seq, type: frame.event as EventType })
      }
    }
    flush()
  }

  private fail(status: LiveState['status'], pause?: number): number {
    this.set(status)
    const pauses = this.options.pauses ?? PAUSES
    const base = pause ?? pauses[Math.min(this.failures++, pauses.length - 1)]!
    return base * (0.8 + Math.random() * 0.4)
  }

  private set(status: LiveState['status']): void {
    // "Not live since" is the time of the first failure, not of the last attempt.
    if (status !== this.current.status) this.current = { status, since: this.now(), position: null }
    this.hooks.state(this.state)
  }

  private now(): number {
    return (this.options.now ?? Date.now)()
  }
}

function parse<T extends object>(text: string): T | null {
  try {
    const value = JSON.parse(text) as T | null
    return typeof value === 'object' ? value : null
  } catch {
    return null
  }
}
