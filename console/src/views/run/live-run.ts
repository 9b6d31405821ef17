// Changes of a run by its events, before it is loaded again.

import type { LiveEvent } from '$/live'
import type { StageState } from '$/runs'

export interface Growing {
  text: string
  stream: string
}

/** States by path, and texts that a model is writing. */
export interface LiveRun {
  states: Map<string, StageState>
  texts: Map<string, Growing>
}

interface RunEvent {
  type: string
  run_id: string
  root_run_id: string
  path: string
  stage_id: string | null
  branch_id: string | null
  error: string | null
  delta?: { content: string; stream_id: string; supersedes?: string } | null
  data?: { awaits?: string } | null
}

/** Applies events; returns whether one of them changes more than a growing text. */
export function applyEvents(live: LiveRun, events: readonly LiveEvent[], run_id: string): boolean {
  let changed = false
  for (const { type, event } of events) {
    if (type !== 'run') {
      changed = true
      continue
    }
    const run = event as unknown as RunEvent
    if (run.root_run_id !== run_id) continue
    if (run.type === 'step_delta' && run.delta) {
      const { content, stream_id } = run.delta
      const known = live.texts.get(run.path)
      live.texts.set(run.path, known?.stream === stream_id ? { text: known.text + content, stream: stream_id } : { text: content, stream: stream_id })
      continue
    }
    changed = true
    const state = stateAfter(run)
    if (state && run.path !== '') live.states.set(run.path, state)
    if (state !== 'running' && state !== null) live.texts.delete(run.path)
  }
  return changed
}

function stateAfter(run: RunEvent): StageState | null {
  if (run.type === 'stage_started' || run.type === 'branch_started') return 'running'
  if (run.type === 'stage_completed' || run.type === 'branch_completed') return run.error ? 'failed' : 'completed'
  if (run.type === 'run_failed' && run.path !== '') return 'failed'
  return run.data?.awaits === 'answer' ? 'waiting' : null
}
