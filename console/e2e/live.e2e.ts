// One stream for each browser, and pages that are as the API says after processes were killed. On a cluster.

import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { isLive, launch, user, type User } from './support/browser'
import { applyEcho, applyStoryteller, storyOf } from './support/fixtures'
import { Gate, startModel, streamed, type Model } from './support/model'
import { conversation, expectRunAsInApi, expectSessionAsInApi, say, shown } from './support/pages'
import { Cluster } from './support/system'
import { DEADLINE, until } from './support/until'

let browser: Browser
let model: Model
let cluster: Cluster

beforeAll(async () => {
  model = await startModel()
  ;[browser, cluster] = await Promise.all([launch(), Cluster.start({ model: model.base, gateways: 2 })])
  await applyEcho(cluster.api)
  await applyStoryteller(cluster.api)
})
afterAll(async () => {
  await browser?.close()
  await cluster?.stop()
  await model?.stop()
})

/** Event streams that clients have open at the first gateway, by its own count. */
async function streams(): Promise<number> {
  const metrics = await (await cluster.api.send('GET', '/metrics')).text()
  return Number(/^turnwheel_event_streams (\d+)/m.exec(metrics)?.[1])
}

const TABS = 8

async function eightTabs(person: User): Promise<void> {
  const tabs = await Promise.all(Array.from({ length: TABS }, () => person.open('/playground?agent=echo')))
  await Promise.all(tabs.map(isLive))
  expect(await streams()).toBe(1)
  // All at the same time: a browser has six connections to a server over HTTP/1.1.
  await Promise.all(
    tabs.map(async (tab, index) => {
      await say(tab, `from tab ${index}`)
      await shown(tab, `You said: from tab ${index}`)
    }),
  )
  expect(await streams()).toBe(1)
  const watcher = await person.open('/sessions')
  for (const tab of tabs) await watcher.locator('tbody').getByText(tab.url().split('/').at(-1)!).first().waitFor()
}

describe('eight tabs', () => {
  test('are live over one stream, and each can post', async () => {
    const person = await user(browser, cluster.base)
    await eightTabs(person)
    expect(person.problems).toEqual([])
    await person.context.close()
    await until('the stream is closed', async () => (await streams()) === 0)
  })

  test('are so without shared workers, and another tab reads on when the reading one closes', async () => {
    const person = await user(browser, cluster.base, { withoutSharedWorker: true })
    const first = await person.open('/playground?agent=echo')
    await isLive(first)
    await eightTabs(person)
    const other = await person.open('/playground?agent=echo')
    await isLive(other)
    await first.close()
    await say(other, 'who reads now?')
    await shown(other, 'You said: who reads now?')
    expect(await streams()).toBe(1)
    expect(person.problems).toEqual([])
  })
})

describe('a page is as the API says', () => {
  const PIECES = ['Once upon', ' a time', ' there was', ' a wheel', ' that turned.']
  const STORY = PIECES.join('')

  /** A session whose story has begun, on the page of the session and on that of its run. */
  async function begin(person: User, session_id: string, gate: Gate): Promise<{ session: Page; run: Page; run_id: string }> {
    await cluster.api.post('/api/v1/messages', { session_id, agent_id: 'storyteller', job_id: `${session_id}-1`, text: 'wheels', user_id: 'u1' })
    const run_id = await until('a run has begun', async () => {
      const { runs } = await cluster.api.get('/api/v1/runs?limit=10')
      return (runs as { run_id: string; origin_session?: string }[]).find((run) => run.origin_session === session_id)?.run_id
    })
    const [session, run] = await Promise.all([person.open(`/sessions/${session_id}`), person.open(`/runs/${encodeURIComponent(run_id)}`)])
    await Promise.all([isLive(session), isLive(run)])
    await run.locator('[data-stage=story]').waitFor()
    gate.open(2)
    await growing(session, 'Once upon a time')
    return { session, run, run_id }
  }

  const growing = (page: Page, text: string) => expect.poll(async () => (await conversation(page)).at(-1)?.text, { timeout: DEADLINE }).toBe(text)

  async function compare(pages: { session: Page; run: Page; run_id: string }, session_id: string): Promise<void> {
    await until('the turn is committed', async () => (await cluster.api.get(`/api/v1/sessions/${session_id}`)).workflow_state.status === 'ready')
    await expectSessionAsInApi(pages.session, cluster.api, session_id)
    await expectRunAsInApi(pages.run, cluster.api, pages.run_id)
    const replies = (await conversation(pages.session)).filter(({ role }) => role === 'assistant')
    expect(replies).toEqual([{ role: 'assistant', text: STORY }])
  }

  test('after its gateway was killed in mid-sentence', async () => {
    const gate = new Gate()
    model.script(storyOf(() => streamed(PIECES, gate)))
    const person = await user(browser, cluster.base)
    const pages = await begin(person, 'gateway-dies', gate)
    await cluster.killGateway(0)
    // Written while no gateway serves the page.
    gate.open(2)
    await pages.session.locator('.topbar button.offline').waitFor()
    await cluster.startGateway(0)
    await isLive(pages.session)
    await growing(pages.session, 'Once upon a time there was a wheel')
    gate.openAll()
    await compare(pages, 'gateway-dies')
  })

  test('after the turn ended while its gateway was dead', async () => {
    const gate = new Gate()
    model.script(storyOf(() => streamed(PIECES, gate)))
    const person = await user(browser, cluster.base)
    const pages = await begin(person, 'ends-meanwhile', gate)
    await cluster.killGateway(0)
    gate.openAll()
    const other = cluster.baseOf(1)
    await until('the turn is committed', async () => {
      const session = (await (await fetch(`${other}/api/v1/sessions/ends-meanwhile`)).json()) as { workflow_state: { status: string } }
      return session.workflow_state.status === 'ready'
    })
    await cluster.startGateway(0)
    await isLive(pages.session)
    await compare(pages, 'ends-meanwhile')
  })

  test('after the worker was killed in mid-sentence', async () => {
    const gates = [new Gate(), new Gate()]
    model.script(storyOf((call) => streamed(PIECES, gates[Math.min(call.earlier, 1)]!)))
    const person = await user(browser, cluster.base)
    const pages = await begin(person, 'worker-dies', gates[0]!)
    await cluster.workers[0]!.kill()
    await cluster.startWorker()
    // The second worker asks again; its text replaces the first one.
    gates[1]!.open()
    await growing(pages.session, 'Once upon')
    gates[1]!.openAll()
    await compare(pages, 'worker-dies')
    expect(person.problems).toEqual([])
  })
})
