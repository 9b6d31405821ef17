// State that the boxes of a run share: the selected stage, growing texts, and the current time.

import { getContext, setContext } from 'svelte'
import type { Growing } from './live-run'

export interface Show {
  readonly selected: string | null
  readonly texts: ReadonlyMap<string, Growing>
  readonly now: number
  select(path: string): void
}

const KEY = Symbol('run')
export const provideShow = (show: Show): Show => setContext(KEY, show)
export const useShow = (): Show => getContext<Show>(KEY)
