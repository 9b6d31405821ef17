// Much data: each page is there within a second. On a cluster. `E2E_FIGURES=FILE` appends the figures to a file.

import type { Browser } from 'playwright-core'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { launch, user } from './support/browser'
import { applyEcho } from './support/fixtures'
import { note, slowness } from './support/machine'
import type { Doc } from './support/mongo'
import { Cluster } from './support/system'
import { until } from './support/until'

const SESSIONS = 10_000
const STAGES = 2_000
const STEPS = 500
/** Most time until a page shows its data on an idle machine, in ms. Its processor time has this limit everywhere. */
const LIMIT = 1_000

let browser: Browser
let cluster: Cluster

const worker = { id: 'worker', model: 'default', system_prompt: 'Repeat.', rules: [{ when: { always: true }, decide: { response: 'done' } }] }
const looper = {
  id: 'looper',
  name: 'Looper',
  model: 'default',
  sop: 'Loop.',
  flows: ['many_steps'],
  rules: [{ when: { always: true }, decide: { next_status: 'processing', action: { type: 'FLOW', target: 'many_steps', params: {} } } }],
}

/** A loop of 100 stages. */
const loop = (id: string, stages: number) => ({
  id,
  type: 'loop',
  max_iterations: stages / 100,
  stages: Array.from({ length: 100 }, (_, index) => ({ id: `stage_${index + 1}`, runnable: 'worker', input: '{query}' })),
})

beforeAll(async () => {
  ;[browser, cluster] = await Promise.all([launch(), Cluster.start()])
  const { api } = cluster
  await applyEcho(api)
  await api.put('/api/v1/agents/worker', worker)
  for (const workflow of [loop('many_stages', STAGES), loop('many_steps', STEPS)]) await api.put(`/api/v1/workflows/${workflow.id}`, workflow)
  await api.put('/api/v1/agents/looper', looper)
  await api.post('/api/v1/workflows/many_stages/runs', { run_id: 'large-run', query: 'x' })
  await api.post('/api/v1/messages', { session_id: 'large-turn', agent_id: 'looper', job_id: 'm-1', text: 'go', user_id: 'u1' })
  await api.post('/api/v1/messages', { session_id: 'template', agent_id: 'echo', job_id: 'm-1', text: 'hello', user_id: 'u1' })
  await until('the template is there', async () => (await api.send('GET', '/api/v1/sessions/template/turns/m-1')).ok)
  await manySessions()
  await until('the turn has ended', async () => (await api.send('GET', '/api/v1/sessions/large-turn/turns/m-1')).ok, 100_000)
  await until('the run has ended', async () => (await api.get('/api/v1/runs/large-run')).status === 'completed', 100_000)
}, 240_000)
afterAll(async () => {
  await browser?.close()
  await cluster?.stop()
})

/** Copies of one session, which began one after the other. */
async function manySessions(): Promise<void> {
  const mongo = await cluster.mongo()
  const [template] = await mongo.find('turnwheel', 'sessions', { _id: 'template' })
  const copies: Doc[] = Array.from({ length: SESSIONS }, (_, index) => {
    const at = new Date(Date.now() - index * 1000)
    return { ...template, _id: `many-${String(index).padStart(5, '0')}`, user_id: `u${index}`, created_at: at, updated_at: at }
  })
  await mongo.insert('turnwheel', 'sessions', copies)
  mongo.close()
}

interface Opened {
  time: number
  /** Processor time of the page. */
  work: number
}

/** Time in ms from the request of the page until `selector` is there with this many elements, without anything in a cache. */
async function opens(path: string, selector: string, count: number): Promise<Opened> {
  const person = await user(browser, cluster.base)
  await person.context.addInitScript(
    ([wanted, least]) => {
      const look = () => {
        if (document.querySelectorAll(wanted as string).length >= (least as number)) (globalThis as { shownAt?: number }).shownAt = performance.now()
        else requestAnimationFrame(look)
      }
      look()
    },
    [selector, count] as const,
  )
  const page = await person.context.newPage()
  const cdp = await person.context.newCDPSession(page)
  await cdp.send('Performance.enable', { timeDomain: 'threadTicks' })
  await page.goto(`${cluster.base}/console${path}`)
  await page.waitForFunction(() => (globalThis as { shownAt?: number }).shownAt !== undefined)
  const time = await page.evaluate(() => (globalThis as { shownAt?: number }).shownAt!)
  const { metrics } = await cdp.send('Performance.getMetrics')
  const work = metrics.find(({ name }) => name === 'TaskDuration')!.value * 1000
  expect(person.problems).toEqual([])
  await person.context.close()
  return { time, work }
}

/** Checks the best of a few: other programs on the machine make a page slower, and nothing makes it faster. */
async function best(name: string, path: string, selector: string, count: number): Promise<void> {
  const opened: Opened[] = []
  const limit = LIMIT * (await slowness(browser, cluster.base))
  const least = (what: keyof Opened) => Math.round(Math.min(...opened.map((each) => each[what])))
  while (opened.length < 4 && !(opened.length > 0 && least('time') <= limit)) opened.push(await opens(path, selector, count))
  note(`${name}: ${least('time')} ms, of which the page works ${least('work')} ms; the limit here and now is ${Math.round(limit)} ms`)
  expect(least('time'), name).toBeLessThanOrEqual(limit)
  expect(least('work'), `${name}: processor time`).toBeLessThanOrEqual(LIMIT)
}

test('10,000 sessions', async () => {
  await best('10,000 sessions', '/sessions', 'tbody tr', 50)
  await best('10,000 sessions, filtered', '/sessions?agent_id=echo&status=ready', 'tbody tr', 50)
})

test('a turn of 500 steps', async () => {
  const { steps } = await cluster.api.get('/api/v1/sessions/large-turn/turns/m-1')
  expect(steps.length).toBeGreaterThanOrEqual(STEPS)
  await best('a turn of 500 steps', '/sessions/large-turn/turns/m-1', '.waterfall li', STEPS)
})

test('a run of 2,000 stages', async () => {
  expect((await cluster.api.get('/api/v1/runs/large-run')).timeline.length).toBeGreaterThanOrEqual(STAGES)
  await best('a run of 2,000 stages', '/runs/large-run', '[data-stage]', 100)
})
