// The listing of sessions: its filters, and the changes by events.

import { request, type Schema } from '$/api'
import type { ListingOptions, LiveEvent } from '$/live'

export type SessionRow = Schema<'SessionSummary'>
export type Status = Schema<'Status'>
export const STATUSES: readonly Status[] = ['acknowledged', 'processing', 'typing', 'ready', 'cancelled', 'transferred']

/** Names of the filters, in the address as in the API. */
export const FILTERS = ['status', 'agent_id', 'channel', 'user_id', 'waiting', 'since', 'until', 'q'] as const
export type Filters = Partial<Record<(typeof FILTERS)[number], string>>

/** Shortest times back from now, for `since`: the address keeps them, and not the time that they mean. */
export const AGO: Record<string, number> = { '1h': 3_600_000, '24h': 86_400_000, '7d': 604_800_000 }

/** Filters in the query of the address. Unknown values count as none. */
export function filtersOf(query: URLSearchParams): Filters {
  const filters: Filters = {}
  for (const name of FILTERS) {
    const value = query.get(name)?.trim()
    if (value) filters[name] = value
  }
  if (!STATUSES.includes(filters.status as Status)) delete filters.status
  if (filters.waiting !== 'true' && filters.waiting !== 'false') delete filters.waiting
  for (const name of ['since', 'until'] as const) {
    const value = filters[name]
    if (value !== undefined && !(value in AGO) && Number.isNaN(Date.parse(value))) delete filters[name]
  }
  return filters
}

/** A time of the filters as the API takes it: `24h` before now, or a time without a zone, which is the user's. */
export function timeOf(value: string | undefined, now: number): string | undefined {
  if (value === undefined) return undefined
  const ago = AGO[value]
  return new Date(ago === undefined ? Date.parse(value) : now - ago).toISOString()
}

/** Requests at most for one page: a page with filters may be empty and have a `next`. */
const MOST = 20

export function sessionsListing(filters: Filters): ListingOptions<SessionRow> {
  return {
    async load(after, signal) {
      const now = Date.now()
      const query = { ...filters, since: timeOf(filters.since, now), until: timeOf(filters.until, now), limit: 50 }
      const items: SessionRow[] = []
      let next = after
      let as_of: number | null | undefined
      for (let count = 0; count < MOST; count++) {
        const page = await request<Schema<'SessionList'>>('GET', '/api/v1/sessions', { query: { ...query, after: next }, signal })
        items.push(...page.sessions)
        as_of ??= page.as_of
        next = page.next ?? undefined
        if (next === undefined || items.length > 0) break
      }
      return { items, next, as_of }
    },
    key: (session) => session.session_id,
    filter: { types: ['status', 'turn'] },
    apply: (sessions, events) => touch(sessions, events, filters),
  }
}

/** Shows new statuses before the next load and moves changed sessions to the front, as the API lists them. */
export function touch(sessions: SessionRow[], events: LiveEvent[], filters: Filters): SessionRow[] {
  const changed = new Map<string, SessionRow>()
  for (const { type, session_id, event } of events) {
    const known = changed.get(session_id) ?? sessions.find((session) => session.session_id === session_id)
    if (!known) continue
    const row: SessionRow = { ...known, updated_at: String(event.at) }
    if (type === 'status') {
      row.status = event.status as Status
      row.status_reason = (event.reason as string | null) ?? null
    }
    changed.delete(session_id)
    changed.set(session_id, row)
  }
  if (changed.size === 0) return sessions
  const front = [...changed.values()].reverse().filter((session) => !filters.status || session.status === filters.status)
  return [...front, ...sessions.filter((session) => !changed.has(session.session_id))]
}
