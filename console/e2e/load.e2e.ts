// Many events: no page hangs, none is lost, and the memory does not grow. On a cluster. `E2E_LOAD_SECONDS` makes it longer, and
// `E2E_FIGURES=FILE` appends the figures to a file.

import type { Browser, CDPSession, Page } from 'playwright-core'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { isLive, launch, user } from './support/browser'
import { applyEcho } from './support/fixtures'
import { Publisher } from './support/nats'
import { note } from './support/machine'
import { shown } from './support/pages'
import { Cluster } from './support/system'
import { until } from './support/until'

const SECONDS = Number(process.env.E2E_LOAD_SECONDS ?? 12)
const RATE = 1_000
const SESSIONS = 50
/** Most processor time of a task of a page, in ms. (Its whole time also depends on the other programs of the machine.) */
const LONGEST = 200
/** Growth of a page's heap that counts as noise, in bytes. */
const NOISE = 4 * 1024 * 1024

let browser: Browser
let cluster: Cluster

beforeAll(async () => {
  ;[browser, cluster] = await Promise.all([launch(['--js-flags=--expose-gc']), Cluster.start()])
  await applyEcho(cluster.api)
  for (let index = 0; index < SESSIONS; index++) {
    await cluster.api.post('/api/v1/messages', { session_id: `busy-${index}`, agent_id: 'echo', job_id: 'm-1', text: 'hello', user_id: 'u1', channel: 'web' })
  }
  await until('all sessions are there', async () => (await cluster.api.get('/api/v1/sessions?status=ready&limit=1000')).sessions.length === SESSIONS)
})
afterAll(async () => {
  await browser?.close()
  await cluster?.stop()
})

interface Watched {
  name: string
  page: Page
  cdp: CDPSession
}

async function watch(name: string, page: Page): Promise<Watched> {
  await isLive(page)
  const cdp = await page.context().newCDPSession(page)
  await cdp.send('Performance.enable')
  return { name, page, cdp }
}

async function heap({ cdp }: Watched): Promise<number> {
  await cdp.send('HeapProfiler.collectGarbage')
  const { metrics } = await cdp.send('Performance.getMetrics')
  return metrics.find(({ name }) => name === 'JSHeapUsedSize')!.value
}

interface TraceEvent {
  ph: string
  name: string
  pid: number
  tid: number
  /** Processor time in µs. */
  tdur?: number
  args?: { name?: string }
}

/** The longest task of all pages, in ms of processor time. */
function longestTask(trace: Buffer): number {
  const { traceEvents } = JSON.parse(trace.toString()) as { traceEvents: TraceEvent[] }
  const thread = ({ pid, tid }: TraceEvent) => `${pid}/${tid}`
  const pages = new Set(traceEvents.filter((event) => event.name === 'thread_name' && event.args?.name === 'CrRendererMain').map(thread))
  const tasks = traceEvents.filter((event) => event.ph === 'X' && event.name.endsWith('RunTask') && pages.has(thread(event)))
  expect(tasks.length, 'the trace has the tasks of the pages').toBeGreaterThan(100)
  return tasks.reduce((most, { tdur = 0 }) => Math.max(most, tdur), 0) / 1000
}

/**
 * Events as workers publish them. In the first session an endless text grows; the others change their status. Every 20 ms a
 * batch, as many as are due.
 */
class Load {
  sent = 0
  private chunk = 0
  private stream = 0
  constructor(private readonly nats: Publisher) {}

  async run(seconds: number): Promise<void> {
    const begun = Date.now()
    const before = this.sent
    while (Date.now() - begun < seconds * 1000) {
      const due = before + Math.floor(((Date.now() - begun) / 1000) * RATE)
      while (this.sent < due) this.publish()
      await new Promise((done) => setTimeout(done, 20))
    }
  }

  private publish(): void {
    const number = this.sent++
    const at = new Date().toISOString()
    if (number % 20 === 0) {
      this.text(at)
      return
    }
    const session_id = `busy-${1 + (number % (SESSIONS - 1))}`
    const round = Math.floor(number / SESSIONS)
    const [status, previous] = round % 2 === 0 ? ['processing', 'ready'] : ['ready', 'processing']
    this.nats.publish(`tw.out.web.${session_id}.status`, { session_id, turn_id: `t-${round >> 1}`, status, previous, reason: null, at })
  }

  /** A piece of the growing text, 50 in a second. A text has 200 pieces. */
  private text(at: string): void {
    const base = { session_id: 'busy-0', agent_id: 'echo', user_id: 'u1', channel: 'web', turn_id: 'grow', at, metadata: {} }
    const stream_id = `stream-${this.stream}`
    const replaced = this.chunk === 0 && this.stream > 0 ? { supersedes: `stream-${this.stream - 1}` } : {}
    this.nats.publish('tw.out.web.busy-0.reply', { ...base, ...replaced, reply_id: `busy-0/grow/0/story/chunk/${stream_id}/${this.chunk}`, kind: 'chunk', stream_id, seq: this.chunk, text: `word ${this.chunk} ` })
    if (++this.chunk === 200) [this.chunk, this.stream] = [0, this.stream + 1]
  }

  end(): void {
    const session_id = 'busy-0'
    this.nats.publish(`tw.out.web.${session_id}.reply`, { session_id, agent_id: 'echo', user_id: 'u1', channel: 'web', turn_id: 'grow', at: new Date().toISOString(), metadata: {}, reply_id: `${session_id}/grow/0/final`, kind: 'final', seq: 0, text: 'That was the last event.' })
  }
}

test('1,000 events in a second', async () => {
  const person = await user(browser, cluster.base)
  const watched = [
    await watch('sessions', await person.open('/sessions')),
    await watch('a session', await person.open('/sessions/busy-0')),
    await watch('runs', await person.open('/runs')),
  ]
  const nats = await Publisher.open(cluster.natsPort)
  const load = new Load(nats)
  // The stores of recent events fill first.
  await load.run(SECONDS / 3)
  const before = await Promise.all(watched.map(heap))
  await browser.startTracing(undefined, { categories: ['toplevel'] })
  await load.run((SECONDS * 2) / 3)
  const longest = longestTask(await browser.stopTracing())
  const after = await Promise.all(watched.map(heap))
  load.end()
  await shown(watched[1]!.page, 'That was the last event.')
  nats.close()
  note(`${load.sent} events in ${SECONDS} s: longest task ${Math.round(longest)} ms of processor time`)
  watched.forEach(({ name }, index) => note(`heap of the page ${name}: ${mib(before[index]!)} MiB after a third, ${mib(after[index]!)} MiB at the end`))
  expect(load.sent).toBeGreaterThan(RATE * SECONDS * 0.9)
  expect(longest).toBeLessThanOrEqual(LONGEST)
  watched.forEach(({ name }, index) => expect(after[index]! - before[index]!, `growth of the heap of the page ${name}`).toBeLessThan(NOISE))
  expect(person.problems).toEqual([])
}, (SECONDS + 60) * 1000)

const mib = (bytes: number) => (bytes / 1024 / 1024).toFixed(1)
