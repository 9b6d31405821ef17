// Agents and workflows of the tests.

import type { Api } from './api'
import { acts, plan, says, type Answer, type Call } from './model'

/** Repeats the user's words, by the offline model. */
export const echo = {
  id: 'echo',
  name: 'Echo',
  model: 'default',
  sop: 'Repeat what the user says.',
  rules: [{ when: { always: true }, decide: { next_status: 'typing', response: 'You said: {message}' } }],
}

/** Tells a story that it writes piece by piece: the workflow `tell` asks the task agent `teller`, and `titler` for a title. */
export const storyteller = { id: 'storyteller', name: 'Storyteller', model: 'scripted', sop: 'Tell stories.', flows: ['tell'] }
const teller = { id: 'teller', model: 'scripted', system_prompt: 'Tell a story.' }
const titler = { id: 'titler', model: 'scripted', system_prompt: 'Find a title.' }
const tell = {
  id: 'tell',
  type: 'pipeline',
  stages: [
    { id: 'title', runnable: 'titler', input: 'title of {query}' },
    { id: 'story', runnable: 'teller', input: 'story of {query}' },
  ],
}

export async function applyEcho(api: Api): Promise<void> {
  await api.put('/api/v1/agents/echo', echo)
}

export async function applyStoryteller(api: Api): Promise<void> {
  await api.put('/api/v1/agents/teller', teller)
  await api.put('/api/v1/agents/titler', titler)
  await api.put('/api/v1/workflows/tell', tell)
  await api.put('/api/v1/agents/storyteller', storyteller)
}

/** Asks which colour, with choices, by the offline model. */
export async function applyAsker(api: Api): Promise<void> {
  await api.put('/api/v1/workflows/colour', {
    id: 'colour',
    type: 'graph',
    nodes: [{ node_id: 'pick', type: 'ASK', name: 'Pick', config: { question: 'Which colour?', choices: ['red', 'blue'] } }],
    edges: [],
    global_config: { output: 'You picked ${pick.output.answer}.' },
  })
  await api.put('/api/v1/agents/asker', {
    id: 'asker',
    name: 'Asker',
    model: 'default',
    sop: 'Ask for a colour.',
    flows: ['colour'],
    rules: [{ when: { always: true }, decide: { next_status: 'processing', action: { type: 'FLOW', target: 'colour', params: {} } } }],
  })
}

/** The script of a storyteller: `tells` has the story's text. */
export function storyOf(tells: (call: Call) => Answer): (call: Call) => Answer {
  return (call) => {
    if (call.schema === 'plan_and_decision') return plan(acts('FLOW', 'tell'))
    if (call.schema === 'decision') return acts('FLOW', 'tell')
    return call.user.startsWith('title of') ? 'A title' : tells(call)
  }
}

/** Hands the first message of each conversation to a human, and answers itself once it has the conversation again. */
export async function applyDesk(api: Api): Promise<void> {
  await api.put('/api/v1/agents/desk', { id: 'desk', name: 'Desk', model: 'scripted', sop: 'Hand over, then answer.', handoff: { mode: 'hold' } })
}

/** The script of the desk. */
export function deskOf(answer: string): (call: Call) => Answer {
  return (call) => {
    if (call.schema !== 'plan_and_decision') return says(answer)
    return plan({ ...acts('SYSTEM', 'handoff', { summary: 'Wants a refund' }), next_status: 'transferred', response: 'One moment.' })
  }
}
