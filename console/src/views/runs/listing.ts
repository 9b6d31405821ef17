// The listing of runs: its filters, and the changes by events.

import { get, type Schema } from '$/api'
import type { ListingOptions, LiveEvent } from '$/live'
import { RUN_STATUSES, type RunStatus } from '$/runs'

export type RunRow = Schema<'RunSummary'>

export interface Filters {
  status: RunStatus | undefined
  workflow_id: string | undefined
  session_id: string | undefined
}

export function filtersOf(query: URLSearchParams): Filters {
  const status = query.get('status') as RunStatus | null
  return {
    status: status && RUN_STATUSES.includes(status) ? status : undefined,
    workflow_id: query.get('workflow_id') ?? undefined,
    session_id: query.get('session_id') ?? undefined,
  }
}

export function runsListing(filters: Filters): ListingOptions<RunRow> {
  return {
    async load(after, signal) {
      const { runs, next, as_of } = await get('/api/v1/runs', { query: { ...filters, after, limit: 50 }, signal })
      return { items: runs, next, as_of }
    },
    key: (run) => run.run_id,
    filter: { types: ['run'] },
    apply: touch,
  }
}

/** Shows the begin and the end of a run before the next load, which brings everything else. */
export function touch(runs: RunRow[], events: LiveEvent[]): RunRow[] {
  const changes = new Map<string, RunStatus>()
  for (const { event } of events) {
    if (event.run_id !== event.root_run_id || event.depth !== 0) continue
    const awaits = (event.data as { awaits?: string } | null)?.awaits === 'answer'
    const id = String(event.run_id)
    if (event.type === 'run_completed') changes.set(id, 'completed')
    else if (event.type === 'run_failed') changes.set(id, 'failed')
    else if (awaits) changes.set(id, 'waiting')
    else if (event.type === 'run_started') changes.set(id, 'running')
  }
  if (changes.size === 0) return runs
  return runs.map((run) => {
    const status = changes.get(run.run_id)
    // "Failed" may also be a cancelled run: the next load shows which.
    return status && status !== run.status ? { ...run, status } : run
  })
}
