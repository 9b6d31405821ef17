// A committed turn with all its steps, and the verdicts on its decisions.

import { get, type Schema } from '$/api'
import { modelOutput } from './decision'
import type { Step, TurnDetails } from './rows'

export interface Trace {
  turn: TurnDetails
  steps: Step[]
  /** Verdicts on a coordinator's decisions, in their order. */
  decisions: Schema<'SessionDecision'>[]
}

/** Steps that are loaded at most: a page shows no more bars than this. */
const MOST = 5000

export async function loadTrace(session_id: string, turn_id: string, signal: AbortSignal): Promise<Trace> {
  const path = { session_id, turn_id }
  const turn = await get('/api/v1/sessions/{session_id}/turns/{turn_id}', { path, query: { limit: 1000 }, signal })
  const steps = [...turn.steps]
  for (let { next } = turn; next && steps.length < MOST; ) {
    const page = await get('/api/v1/sessions/{session_id}/turns/{turn_id}', { path, query: { limit: 1000, after: next }, signal })
    steps.push(...page.steps)
    next = page.next
  }
  const coordinator = steps.some((step) => step.kind === 'decision')
  const decisions = coordinator ? await decisionsOf(session_id, turn_id, signal) : []
  return { turn, steps, decisions }
}

/** The API lists decisions by turns, the newest first. Those of an older turn are not shown. */
async function decisionsOf(session_id: string, turn_id: string, signal: AbortSignal): Promise<Schema<'SessionDecision'>[]> {
  const { decisions } = await get('/api/v1/sessions/{session_id}/decisions', { path: { session_id }, query: { limit: 200 }, signal })
  return decisions.filter((decision) => decision.turn_id === turn_id)
}

/** Decisions of the steps, each step with its own: a coordinator may decide several times in a turn. */
export function verdictsOf(steps: readonly Step[], decisions: Trace['decisions'], key: string): Trace['decisions'] {
  let from = 0
  const models = steps.filter((step) => step.kind === 'model').sort((a, b) => a.at.localeCompare(b.at))
  for (const step of models) {
    const count = modelOutput(step.output).decision?.decisions.length ?? 0
    if (step.key === key) return decisions.slice(from, from + count)
    from += count
  }
  return []
}

/** Params of an action: the decision of the same iteration has them. */
export function paramsOf(steps: readonly Step[], key: string): unknown {
  const iteration = key.slice(0, key.lastIndexOf('/'))
  const decided = steps.find((step) => step.key === `${iteration}/decide`)
  return decided ? modelOutput(decided.output).decision?.action?.params : undefined
}
