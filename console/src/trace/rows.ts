// The steps of a turn as bars on a time axis.

import type { Schema } from '$/api'

export type Step = Schema<'StepRecord'>
export type TurnDetails = Schema<'TurnDetails'>

export interface Row {
  key: string
  kind: string
  target: string
  /** In ms since 1970. A step that is under way has no end. */
  start: number
  end: number | null
  ok: boolean
  /** Depth within flows: 0 for steps of the turn itself. */
  depth: number
  step?: Step
}

/** Steps that mark something and take no time; they are shown on request only. */
const MARKS = new Set(['begin', 'resumed', 'given_up'])

export const isMark = (kind: string): boolean => MARKS.has(kind)

const time = (text: string): number => new Date(text).getTime()

/** `0/decide` and `0/act` belong to the turn; `0/parallel_analysis/risk/0/model` is three levels into a flow. */
export function depthOf(key: string): number {
  return Math.max(0, Math.min(4, key.split('/').length - 2))
}

export function rowsOf(steps: readonly Step[]): Row[] {
  const rows = steps.map((step): Row => {
    const end = time(step.at)
    return { key: step.key, kind: step.kind, target: step.target ?? '', start: end - step.ms, end, ok: step.ok, depth: depthOf(step.key), step }
  })
  // By their begin. A step that contains others comes before them.
  return rows.sort((a, b) => a.start - b.start || (b.end ?? 0) - (a.end ?? 0) || a.depth - b.depth)
}
