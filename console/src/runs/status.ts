// Statuses of runs and states of their stages, with the tones that show them.

import type { Schema } from '$/api'
import type { Tone } from '$/components'

export type RunStatus = Schema<'RunStatus'>
export const RUN_STATUSES: readonly RunStatus[] = ['pending', 'running', 'waiting', 'completed', 'failed', 'cancelled']

/** State of a stage. The last four are those of stages without a record: the run has not reached them, or will not. */
export type StageState = 'running' | 'waiting' | 'completed' | 'failed' | 'skipped' | 'stopped' | 'pending' | 'not_reached' | 'not_taken'

const TONES: Record<RunStatus | StageState, Tone> = {
  pending: 'grey',
  running: 'blue',
  waiting: 'violet',
  completed: 'green',
  failed: 'red',
  cancelled: 'amber',
  skipped: 'grey',
  stopped: 'amber',
  not_reached: 'grey',
  not_taken: 'grey',
}

export const runTone = (status: string): Tone => TONES[status as RunStatus] ?? 'grey'

/** The run has ended. A failed or cancelled one may be resumed. */
export const hasEnded = (status: string): boolean => status === 'completed' || status === 'failed' || status === 'cancelled'
