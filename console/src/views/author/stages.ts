import type { Tone } from '$/components'
import type { Stage } from './dialogue.svelte'

/** The stages in their order. Alternatives come only after a gap, checks may lead back. */
export const STAGES: readonly Stage[] = ['clarification', 'negotiation', 'gap_analysis', 'alternative_generation', 'workflow_generation', 'debug', 'completed']

export const stageTone = (stage: Stage): Tone => (stage === 'completed' ? 'green' : stage === 'error' ? 'red' : 'blue')
