// Data of a page: loaded, followed, and loaded again when it has changed or events are missing.

import { isAbort } from '$/api'
import { live, type Following } from './live.svelte'
import type { Filter, LiveEvent } from './protocol'

export interface QueryOptions<T> {
  load(signal: AbortSignal): Promise<T>
  /** Which events concern the data; without it the data is not followed. */
  filter?: Filter
  /**
   * Changes the data without a load where an event says how, and returns whether it has to be loaded again. Without it, every event
   * loads it again.
   */
  apply?(events: LiveEvent[], query: Query<T>): boolean
  /** Shortest time between two loads that events cause, in ms. */
  every?: number
}

/** Position of a listing in the stream of events, where the API says it. */
function asOf(data: unknown): number | null {
  const value = (data as { as_of?: unknown } | null | undefined)?.as_of
  return typeof value === 'number' ? value : null
}

export class Query<T> {
  data = $state.raw<T | undefined>(undefined)
  error = $state.raw<unknown>(undefined)
  /** True until the first response. */
  loading = $state(true)
  /** True while a response is awaited. */
  busy = $state(false)

  private following: Following | null = null
  private abort: AbortController | null = null
  private timer: ReturnType<typeof setTimeout> | null = null
  private last = 0
  private again = false
  private stopped = false

  constructor(private readonly options: QueryOptions<T>) {}

  async start(): Promise<void> {
    if (this.options.filter) {
      this.following = live.follow({
        filter: this.options.filter,
        onEvents: (events) => this.events(events),
        onGap: () => this.soon(),
      })
      await this.following.ready
    }
    if (!this.stopped) await this.load()
  }

  stop(): void {
    this.stopped = true
    this.following?.stop()
    this.abort?.abort()
    if (this.timer) clearTimeout(this.timer)
  }

  /** Loads now. */
  async load(): Promise<void> {
    if (this.busy) {
      this.again = true
      return
    }
    this.busy = true
    this.again = false
    this.last = Date.now()
    this.abort = new AbortController()
    try {
      const data = await this.options.load(this.abort.signal)
      if (this.stopped) return
      this.data = data
      this.error = undefined
    } catch (error) {
      if (this.stopped || isAbort(error)) return
      this.error = error
    } finally {
      this.loading = false
      this.busy = false
    }
    if (this.again) this.soon()
  }

  /** Loads as soon as `every` allows. Many calls are one load. */
  soon(): void {
    if (this.stopped || this.timer) return
    const pause = Math.max(0, this.last + (this.options.every ?? 250) - Date.now())
    this.timer = setTimeout(() => {
      this.timer = null
      void this.load()
    }, pause)
  }

  private events(events: LiveEvent[]): void {
    const as_of = asOf(this.data)
    const news = as_of === null ? events : events.filter((event) => event.seq > as_of)
    if (news.length === 0) return
    // The response that is awaited may have been read before these events.
    if (this.busy) this.again = true
    if (this.options.apply?.(news, this) ?? true) this.soon()
  }
}

/**
 * A query that lives as long as the component, and starts again when what `options` reads changes (a session's id, filters).
 */
export function useQuery<T>(options: () => QueryOptions<T> | null): { readonly current: Query<T> | null } {
  let current = $state.raw<Query<T> | null>(null)
  $effect.pre(() => {
    const wanted = options()
    if (!wanted) {
      current = null
      return
    }
    const query = new Query(wanted)
    current = query
    void query.start()
    return () => query.stop()
  })
  return {
    get current() {
      return current
    },
  }
}
