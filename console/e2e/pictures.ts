// Makes the pictures of docs/console.md: `npm run pictures`. On `turnwheel dev` with the sample agents and workflows.

import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import type { Browser } from 'playwright-core'
import { afterAll, beforeAll, test } from 'vitest'
import { isLive, launch, user, type Theme } from './support/browser'
import { settled } from './support/pages'
import { ROOT } from './support/programs'
import { startDev, type System } from './support/system'
import { until } from './support/until'

const FOLDER = join(ROOT, 'docs/pictures')

let browser: Browser
let dev: System

beforeAll(async () => {
  mkdirSync(FOLDER, { recursive: true })
  ;[browser, dev] = await Promise.all([launch(['--force-color-profile=srgb']), startDev()])
})
afterAll(async () => {
  await browser?.close()
  await dev?.stop()
})

async function say(session_id: string, job_id: string, text: string, user_id: string): Promise<void> {
  await dev.api.post('/api/v1/messages', { session_id, agent_id: 'sales', job_id, text, user_id, channel: 'web' })
  await until('the turn is committed', async () => (await dev.api.send('GET', `/api/v1/sessions/${session_id}/turns/${job_id}`)).ok)
}

async function picture(name: string, view: string, theme: Theme = 'light'): Promise<void> {
  const person = await user(browser, dev.base, { theme, viewport: { width: 1200, height: 720 } })
  const page = await person.open(view)
  await isLive(page)
  await settled(page)
  await page.evaluate(() => document.fonts.ready)
  await page.screenshot({ path: join(FOLDER, `console-${name}.png`) })
}

const release = {
  id: 'release',
  type: 'graph',
  name: 'Release',
  description: 'Checks a version, asks for approval and announces it',
  global_config: { inputs: [{ name: 'version', type: 'string', required: true }], output: '${announce.output.text}' },
  nodes: [
    { node_id: 'checks', type: 'PYTHON', name: 'Checks', config: { code: 'return {"ok": True, "tests": 128}' } },
    { node_id: 'notes', type: 'LLM', name: 'Release notes', config: { prompt: 'Write the notes of version ${input.version}' } },
    { node_id: 'green', type: 'CONDITION', name: 'All green?', config: { expression: '${checks.output.tests} == 128' } },
    { node_id: 'approve', type: 'ASK', name: 'Approval', config: { question: 'Release version ${input.version}?', choices: ['Release', 'Wait'] } },
    { node_id: 'fix', type: 'LLM', name: 'Proposal', config: { prompt: 'How can it be mended?' } },
    { node_id: 'announce', type: 'LLM', name: 'Announcement', config: { prompt: 'Announce it: ${approve.output.answer}' } },
  ],
  edges: [
    { source: 'checks', target: 'green' },
    { source: 'green', target: 'approve', condition: 'true' },
    { source: 'green', target: 'fix', condition: 'false' },
    { source: 'notes', target: 'approve' },
    { source: 'approve', target: 'announce' },
  ],
}

test('pictures', async () => {
  const { api } = dev
  await api.put('/api/v1/workflows/release', release)
  await api.post('/api/v1/workflows/release/runs', { run_id: 'release-2-4', input: { version: '2.4' } })
  await api.post('/api/v1/workflows/nested_research/runs', { run_id: 'research-batteries', query: 'Battery recycling' })
  for (const [index, text] of ['你好', '订单 A1002 到哪了？', '请转人工', '几点关门？', '再见'].entries()) await say(`web-10${index}`, 'm-1', text, `u-${index}`)
  await say('web-204', 'm-1', '你好', 'lin')
  await say('web-204', 'm-2', '订单 A1001 几天送到？', 'lin')
  await say('web-204', 'm-3', '分析一下电动车市场', 'lin')
  await until('the run waits', async () => (await api.get('/api/v1/runs/release-2-4')).status === 'waiting')
  await until('the run has ended', async () => (await api.get('/api/v1/runs/research-batteries')).status === 'completed')
  await picture('playground', '/playground/web-204')
  await picture('sessions', '/sessions', 'dark')
  await picture('turn', '/sessions/web-204/turns/m-3')
  await picture('run', '/runs/release-2-4', 'dark')
})
