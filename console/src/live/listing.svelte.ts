// A listing of the API with its cursor: pages are added at the end, and the first page follows the events.

import { isAbort } from '$/api'
import { live, type Following } from './live.svelte'
import type { Filter, LiveEvent } from './protocol'

export interface Page<T> {
  items: T[]
  next?: string | null
  as_of?: number | null
}

export interface ListingOptions<T> {
  load(after: string | undefined, signal: AbortSignal): Promise<Page<T>>
  key(item: T): string
  /** Events that change the listing; without it the listing is not followed. */
  filter?: Filter
  /**
   * Changes items without a load, where an event says how: at most four times a second, because a table that changes with each of
   * many events can be neither read nor drawn. The first page is loaded again in any case, at most every `every` ms.
   */
  apply?(items: T[], events: LiveEvent[]): T[]
  every?: number
}

const APPLY_EVERY = 250

export class Listing<T> {
  items = $state.raw<T[]>([])
  error = $state.raw<unknown>(undefined)
  /** True until the first response. */
  loading = $state(true)
  loadingMore = $state(false)
  next = $state<string | undefined>(undefined)

  private pages = 0
  private following: Following | null = null
  private readonly abort = new AbortController()
  private timer: ReturnType<typeof setTimeout> | null = null
  private last = 0
  /** Events that `apply` has not seen yet. */
  private waiting: LiveEvent[] = []
  private applying: ReturnType<typeof setTimeout> | null = null
  private applied = 0
  private busy = false
  private again = false
  /** The next load drops the later pages. */
  private whole = false

  constructor(private readonly options: ListingOptions<T>) {}

  key(item: T): string {
    return this.options.key(item)
  }

  async start(): Promise<void> {
    const as_of = await this.refresh()
    const { filter } = this.options
    if (!filter || this.abort.signal.aborted) return
    this.following = live.follow({
      after: as_of,
      filter,
      onEvents: (events) => {
        if (this.options.apply) this.applySoon(events)
        this.soon()
      },
      onGap: () => this.soon(true),
    })
    // Without a position of the listing, what happened before the following began is in a second listing.
    if (as_of === null) void this.following.ready.then(() => this.soon())
  }

  stop(): void {
    this.abort.abort()
    this.following?.stop()
    if (this.timer) clearTimeout(this.timer)
    if (this.applying) clearTimeout(this.applying)
  }

  private applySoon(events: LiveEvent[]): void {
    this.waiting.push(...events)
    this.applying ??= setTimeout(() => {
      this.applying = null
      this.applied = Date.now()
      const waiting = this.waiting
      this.waiting = []
      this.items = this.options.apply!(this.items, waiting)
    }, Math.max(0, this.applied + APPLY_EVERY - Date.now()))
  }

  async more(): Promise<void> {
    const after = this.next
    if (!after || this.loadingMore) return
    this.loadingMore = true
    try {
      const page = await this.options.load(after, this.abort.signal)
      // The listing has begun again meanwhile: this page may not join it.
      if (this.next !== after) return
      const known = new Set(this.items.map(this.options.key))
      this.items = [...this.items, ...page.items.filter((item) => !known.has(this.options.key(item)))]
      this.next = page.next ?? undefined
      this.pages++
    } catch (error) {
      if (!isAbort(error)) this.error = error
    } finally {
      this.loadingMore = false
    }
  }

  /** Loads the first page again. Later pages stay, unless `whole`: then they are dropped. Returns `as_of`. */
  async refresh(whole = false): Promise<number | null> {
    this.whole ||= whole
    if (this.busy) {
      this.again = true
      return null
    }
    this.busy = true
    this.last = Date.now()
    const first = this.whole || (this.pages <= 1 && !this.loadingMore)
    this.whole = false
    try {
      const page = await this.options.load(undefined, this.abort.signal)
      const loaded = this.reused(page.items)
      if (first) {
        this.items = loaded
        this.next = page.next ?? undefined
        this.pages = 1
      } else {
        const known = new Set(page.items.map(this.options.key))
        this.items = [...loaded, ...this.items.filter((item) => !known.has(this.options.key(item)))]
      }
      this.error = undefined
      return page.as_of ?? null
    } catch (error) {
      this.whole ||= first
      if (!isAbort(error)) this.error = error
      return null
    } finally {
      this.loading = false
      this.busy = false
      if (this.again) {
        this.again = false
        this.soon()
      }
    }
  }

  /** These items, and for those that have not changed the objects that the page shows already: their rows stay as they are. */
  private reused(items: T[]): T[] {
    const shown = new Map(this.items.map((item) => [this.options.key(item), item]))
    return items.map((item) => {
      const before = shown.get(this.options.key(item))
      return before !== undefined && JSON.stringify(before) === JSON.stringify(item) ? before : item
    })
  }

  /** Loads the first page again as soon as `every` allows. Many calls are one load. */
  soon(whole = false): void {
    this.whole ||= whole
    if (this.timer || this.abort.signal.aborted) return
    const pause = Math.max(50, this.last + (this.options.every ?? 1000) - Date.now())
    this.timer = setTimeout(() => {
      this.timer = null
      void this.refresh()
    }, pause)
  }
}

/** A listing that lives as long as the component, and starts again when what `options` reads changes (filters). */
export function useListing<T>(options: () => ListingOptions<T>): { readonly current: Listing<T> | null } {
  let current = $state.raw<Listing<T> | null>(null)
  $effect.pre(() => {
    const listing = new Listing(options())
    current = listing
    void listing.start()
    return () => listing.stop()
  })
  return {
    get current() {
      return current
    },
  }
}
