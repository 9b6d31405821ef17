// The listing of sessions: its filters, and the changes by events.

import { get, type Schema } from '$/api'
import type { ListingOptions, LiveEvent } from '$/live'

export type SessionRow = Schema<'SessionSummary'>
export type Status = Schema<'Status'>
export const STATUSES: readonly Status[] = ['acknowledged', 'processing', 'typing', 'ready', 'cancelled', 'transferred']

export interface Filters {
  status: Status | undefined
  agent_id: string | undefined
}

/** Filters in the query of the address. Unknown values count as none. */
export function filtersOf(query: URLSearchParams): Filters {
  const status = query.get('status') as Status | null
  return { status: status && STATUSES.includes(status) ? status : undefined, agent_id: query.get('agent_id') ?? undefined }
}

export function sessionsListing(filters: Filters): ListingOptions<SessionRow> {
  return {
    async load(after, signal) {
      const { sessions, next, as_of } = await get('/api/v1/sessions', { query: { ...filters, after, limit: 50 }, signal })
      return { items: sessions, next, as_of }
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
