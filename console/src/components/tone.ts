// Tones of statuses. A tone never stands alone: the name of the status is next to it.

export type Tone = 'grey' | 'blue' | 'green' | 'amber' | 'red' | 'violet' | 'teal'

const STATUS: Record<string, Tone> = {
  acknowledged: 'blue',
  processing: 'blue',
  typing: 'blue',
  ready: 'green',
  cancelled: 'red',
  transferred: 'amber',
  waiting: 'violet',
  closed: 'grey',
}

const OUTCOME: Record<string, Tone> = {
  answered: 'green',
  flow: 'violet',
  silent: 'grey',
  noop: 'grey',
  transferred: 'amber',
  cancelled: 'red',
  running: 'blue',
}

export const statusTone = (status: string): Tone => STATUS[status] ?? 'grey'
export const outcomeTone = (outcome: string): Tone => OUTCOME[outcome] ?? 'grey'

/** Statuses in which a turn is under way. */
export const isBusy = (status: string): boolean => status === 'acknowledged' || status === 'processing' || status === 'typing'
