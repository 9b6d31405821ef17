// The decision of a model, read from the recorded output of its step.

export interface Action {
  type: string
  target: string
  params: unknown
}

export interface Decision {
  reasoning: string | null
  next_status: string | null
  action: Action | null
  response: string | null
  /** Decisions of a coordinator. */
  decisions: { decision_type: string; confidence: number | null; payload: unknown }[]
  intent: string | null
}

export interface ModelOutput {
  /** Phase 1 plans and decides, phase 2 decides; null for an answer that is no decision (a task agent's text). */
  phase: 1 | 2 | null
  plan: Record<string, unknown> | null
  decision: Decision | null
  /** The text of a task agent. */
  content: string | null
}

type Fields = Record<string, unknown>
const fields = (value: unknown): Fields | null => (value !== null && typeof value === 'object' && !Array.isArray(value) ? (value as Fields) : null)
const text = (value: unknown): string | null => (typeof value === 'string' && value !== '' ? value : null)

/** The output as an object: steps record the model's words, which are JSON. */
export function parsed(output: unknown): unknown {
  if (typeof output !== 'string') return output
  try {
    return JSON.parse(output)
  } catch {
    return output
  }
}

export function modelOutput(output: unknown): ModelOutput {
  const value = parsed(output)
  const object = fields(value)
  if (!object) return { phase: null, plan: null, decision: null, content: text(value) }
  if ('content' in object) return { phase: null, plan: null, decision: null, content: text(object.content) }
  const plan = fields(object.plan)
  const inner = fields(object.decision) ?? fields(object.answer) ?? object
  const decision = decisionOf(inner)
  return { phase: decision ? (plan ? 1 : 2) : null, plan, decision, content: null }
}

function decisionOf(value: Fields): Decision | null {
  if (!['next_status', 'action', 'response', 'decisions', 'reasoning', 'intent'].some((name) => name in value)) return null
  const output = fields(value.output)
  const made = Array.isArray(value.decisions) ? value.decisions : Array.isArray(output?.decisions) ? output.decisions : []
  const action = fields(value.action)
  return {
    reasoning: text(value.reasoning) ?? text(output?.reasoning),
    next_status: text(value.next_status),
    action: action ? { type: String(action.type ?? ''), target: String(action.target ?? ''), params: action.params } : null,
    response: text(value.response),
    intent: text(value.intent) ?? text(output?.intent),
    decisions: made.map(fields).flatMap((decision) =>
      decision
        ? [
            {
              decision_type: String(decision.decision_type ?? ''),
              confidence: typeof decision.confidence === 'number' ? decision.confidence : null,
              payload: decision.payload,
            },
          ]
        : [],
    ),
  }
}

/** Name of the step's tone: what kind of work it is. */
export function toneOf(kind: string): 'blue' | 'teal' | 'violet' | 'amber' | 'green' | 'grey' {
  if (kind === 'model' || kind === 'plan') return 'violet'
  if (kind === 'skill' || kind === 'tool' || kind === 'action' || kind === 'node' || kind === 'script') return 'blue'
  if (kind === 'flow' || kind === 'stage' || kind === 'run') return 'teal'
  if (kind === 'handoff' || kind === 'ask' || kind === 'asked' || kind === 'answer') return 'amber'
  if (kind === 'knowledge') return 'green'
  return 'grey'
}
