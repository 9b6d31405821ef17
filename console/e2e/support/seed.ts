// An installation with something in each view. Its texts have markup and a secret: a page has to show the first as text, and
// must not show the second. A question has the same choice twice.

import type { Api } from './api'
import { until } from './until'

/** Becomes elements, a dialog and a request if a page treats it as HTML. */
const MARKUP = '<b id="injected">bold</b><img src="/console/x.png" onerror="alert(1)"><script>alert(2)</script>'
export const SECRET = 'swordfish-7c1e55aa90'
export const SECRET_SETTINGS = '[secrets]\nallow = ["E2E_SECRET@127.0.0.1"]\n'
export const SECRET_ENVIRONMENT = { E2E_SECRET: SECRET }

const LOUD = `LOUD ${MARKUP}`

export interface Seeded {
  session_id: string
  turn_id: string
  dialogue: string
}

const agents = (echoServer: string) => [
  {
    id: 'loud',
    name: LOUD,
    model: 'default',
    sop: LOUD,
    greeting: LOUD,
    tools: [{ id: 'leak', description: LOUD, params: { type: 'object' }, http: { method: 'POST', url: `${echoServer}/echo`, headers: { 'x-key': '${E2E_SECRET}' } } }],
    timers: [{ name: 'remind', delay: '30m', message: LOUD }],
    handoff: { mode: 'hold' },
    rules: [
      { when: { result_of: 'leak' }, decide: { next_status: 'typing', response: `${LOUD} {result.key}` } },
      { when: { contains: ['human'] }, decide: { next_status: 'transferred', action: { type: 'SYSTEM', target: 'handoff', params: { reason: LOUD } }, response: LOUD } },
      { when: { contains: ['phone'] }, decide: { next_status: 'typing', action: { type: 'SYSTEM', target: 'update_profile', params: { phone: LOUD } }, response: LOUD } },
      { when: { always: true }, decide: { next_status: 'processing', action: { type: 'TOOL', target: 'leak', params: { text: '{message}' } } } },
    ],
  },
]

const loud_task = { id: 'loud_task', name: LOUD, model: 'default', system_prompt: LOUD, rules: [{ when: { always: true }, decide: { response: `${LOUD} {message}` } }] }

const workflows = (echoServer: string) => [
  { id: 'loud_line', type: 'pipeline', description: LOUD, stages: [{ id: 'one', runnable: 'loud_task', input: '{query}' }, { id: 'two', runnable: 'loud_task', input: '{one}' }] },
  { id: 'loud_loop', type: 'loop', description: LOUD, max_iterations: 3, stages: [{ id: 'again', runnable: 'loud_task', input: '{query}' }] },
  {
    id: 'loud_graph',
    type: 'graph',
    name: LOUD,
    description: LOUD,
    nodes: [
      { node_id: 'start', type: 'HTTP', name: LOUD, config: { url: `${echoServer}/echo`, method: 'POST', headers: { 'x-key': '${E2E_SECRET}' } } },
      { node_id: 'ask', type: 'ASK', name: LOUD, config: { question: LOUD, choices: [LOUD, 'no', 'no'] } },
      { node_id: 'leaks', type: 'HTTP', name: LOUD, config: { url: `${echoServer}/refuse`, method: 'POST', headers: { 'x-key': '${E2E_SECRET}' } } },
      { node_id: 'fail', type: 'PYTHON', name: LOUD, config: { code: `raise Exception(${JSON.stringify(LOUD)})` } },
    ],
    edges: [
      { source: 'start', target: 'ask' },
      { source: 'ask', target: 'fail' },
      { source: 'ask', target: 'leaks' },
    ],
  },
]

/** Ids of runs of these workflows. */
export const RUNS = { line: 'run-line', loop: 'run-loop', waits: 'run-waits', failed: 'run-failed' } as const

const begin = (api: Api, workflow_id: string, run_id: string) => api.post(`/api/v1/workflows/${workflow_id}/runs`, { run_id, query: LOUD })

const runIs = (api: Api, run_id: string, status: string) => until(`${run_id} is ${status}`, async () => (await api.get(`/api/v1/runs/${run_id}`)).status === status)

async function say(api: Api, session_id: string, job_id: string, text: string): Promise<void> {
  await api.post('/api/v1/messages', { session_id, agent_id: 'loud', job_id, text, user_id: 'u1', channel: 'web', attachments: [{ type: 'file', url: `https://example.com/${encodeURIComponent(LOUD)}` }] })
  await until(`the turn ${job_id} is committed`, async () => (await api.send('GET', `/api/v1/sessions/${session_id}/turns/${job_id}`)).ok)
}

async function makeDeadLetter(api: Api): Promise<void> {
  // A session whose agent is deleted.
  await api.put('/api/v1/agents/gone', { id: 'gone', name: 'Gone', model: 'default', sop: 'x', rules: [{ when: { always: true }, decide: { next_status: 'typing', response: 'ok' } }] })
  await api.post('/api/v1/messages', { session_id: 'dead', agent_id: 'gone', job_id: 'd-1', text: 'hello', user_id: 'u2' })
  await until('the turn is committed', async () => (await api.send('GET', '/api/v1/sessions/dead/turns/d-1')).ok)
  await api.send('DELETE', '/api/v1/agents/gone?force=true')
  await api.send('POST', '/api/v1/messages', { session_id: 'dead', job_id: 'd-2', text: LOUD, user_id: 'u2' })
  await until('there is a dead letter', async () => (await api.get('/api/v1/dead')).letters.length > 0)
}

/** `echoServer` responds with what it gets, the secret included. */
export async function seed(api: Api, echoServer: string): Promise<Seeded> {
  for (const agent of [loud_task, ...agents(echoServer)]) await api.put(`/api/v1/agents/${agent.id}`, agent)
  for (const workflow of workflows(echoServer)) await api.put(`/api/v1/workflows/${workflow.id}`, workflow)
  await Promise.all([begin(api, 'loud_line', RUNS.line), begin(api, 'loud_loop', RUNS.loop), begin(api, 'loud_graph', RUNS.waits), begin(api, 'loud_graph', RUNS.failed)])
  await api.put('/api/v1/knowledge/loud/notes.md', { text: `# Notes\n\n${LOUD} wheel\n` })
  await say(api, 'loud-1', 'm-1', LOUD)
  await say(api, 'loud-1', 'm-2', 'my phone')
  await say(api, 'loud-1', 'm-3', 'human')
  await api.post('/api/v1/sessions/loud-1/reply', { text: LOUD, by: LOUD })
  await api.post('/api/v1/sessions/loud-1/notes', { text: LOUD })
  await say(api, 'loud-2', 'm-1', 'hello')
  await api.post('/api/v1/sessions/loud-2/cancel', { reason: LOUD, by: LOUD })
  await makeDeadLetter(api)
  await Promise.all([runIs(api, RUNS.waits, 'waiting'), runIs(api, RUNS.failed, 'waiting')])
  await api.post(`/api/v1/runs/${RUNS.failed}/answer`, { text: 'no' })
  await Promise.all([runIs(api, RUNS.line, 'completed'), runIs(api, RUNS.loop, 'completed'), runIs(api, RUNS.failed, 'failed')])
  const { session_id: dialogue } = await api.post('/api/v1/session', { action: 'create', artifact: 'workflow', config: { language: 'en', preferences: { target_id: 'made_here' } } })
  await (await api.send('POST', '/api/v1/chat/stream', { session_id: dialogue, message: `Summarise a text. ${LOUD}` })).text()
  return { session_id: 'loud-1', turn_id: 'm-1', dialogue }
}

/** The address of each view, with each of its tabs. */
export function viewsOf({ session_id, turn_id, dialogue }: Seeded): string[] {
  const session = `/sessions/${session_id}`
  const turn = `${session}/turns/${turn_id}`
  return [
    '/playground?agent=loud',
    `/playground/${session_id}`,
    ...['/inbox', '/inbox?state=all', `/inbox/${session_id}`],
    '/sessions',
    ...[session, `${session}?tab=turns`, `${session}?tab=json`, turn, `${turn}?tab=json`, `${session}/turns/m-3`, '/sessions/loud-2'],
    ...['/runs', '/runs?start=loud_line', `/runs/${RUNS.line}?stage=one`, `/runs/${RUNS.loop}`, `/runs/${RUNS.waits}`, `/runs/${RUNS.failed}?stage=fail`, `/runs/${RUNS.failed}?tab=json`],
    ...['/author', '/author?new=workflow', `/author/${dialogue}`],
    ...['/agents', '/agents/loud', '/agents/loud?tab=json', '/agents/loud?tab=edit', '/agents/loud?tab=versions', '/agents/loud?tab=sessions'],
    ...['/workflows', '/workflows/loud_graph', '/workflows/loud_line?tab=edit', '/workflows/loud_line?tab=versions', '/workflows/loud_line?tab=runs'],
    '/knowledge?agent_id=loud&query=wheel',
    ...['/timers', '/dead', '/dead/1', '/models', '/doctor', '/metrics', '/audit'],
  ]
}
