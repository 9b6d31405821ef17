// What people do in the console: replay, restart, author, and talk by keyboard alone. On `turnwheel dev`.

import type { Page } from 'playwright-core'
import { expect, test } from 'vitest'
import { isLive, user } from './support/browser'
import { applyAsker, applyStoryteller } from './support/fixtures'
import { installation } from './support/installation'
import { tabTo } from './support/keyboard'
import { Gate, plan, says } from './support/model'
import { conversation, expectRunAsInApi, expectSessionAsInApi, headStatus, shown, stages } from './support/pages'
import { DEADLINE, until } from './support/until'

const on = installation({ scripted: true })

const within = { timeout: DEADLINE }
const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true })

test('a dead letter is replayed, and the user gets the reply', async () => {
  const ghost = { id: 'ghost', name: 'Ghost', model: 'scripted', sop: 'Answer.' }
  const gate = new Gate()
  on.model.script(async (call) => {
    await gate.pass()
    return call.schema === 'decision' ? says('second reply') : plan(says('first reply'))
  })
  await on.dev.api.put('/api/v1/agents/ghost', ghost)
  const message = { session_id: 'haunted', agent_id: 'ghost', user_id: 'u1' }
  await on.dev.api.post('/api/v1/messages', { ...message, job_id: 'm-1', text: 'first' })
  await until('the model is asked', async () => on.model.calls.length > 0)
  // The second message waits in the lane, and its agent is gone when its turn comes.
  await on.dev.api.post('/api/v1/messages', { ...message, job_id: 'm-2', text: 'second' })
  expect((await on.dev.api.send('DELETE', '/api/v1/agents/ghost?force=true')).status).toBeLessThan(300)
  const person = await user(on.browser, on.dev.base)
  const letters = await person.open('/dead')
  await isLive(letters)
  gate.openAll()
  await letters.getByText('unknown agent').first().waitFor()
  await on.dev.api.put('/api/v1/agents/ghost', ghost)

  await letters.locator('tbody').getByRole('link', { name: /Dead letter/ }).first().click()
  await letters.getByText('second').first().waitFor()
  await button(letters, 'Replay').click()
  await letters.locator('dialog').getByRole('button', { name: 'Replay' }).click()
  await letters.getByText('No dead letter').waitFor()
  const session = await person.open('/sessions/haunted')
  await expect.poll(async () => (await conversation(session)).map(({ text }) => text), within).toEqual(['first', 'first reply', 'second', 'second reply'])
  await expectSessionAsInApi(session, on.dev.api, 'haunted')
  expect((await on.dev.api.get('/api/v1/dead')).letters).toEqual([])
  expect(person.problems).toEqual([])
})

test('a run is started, and restarted from a stage', async () => {
  await applyStoryteller(on.dev.api)
  on.model.script((call) => (call.user.startsWith('title') ? 'A title' : `Story ${call.earlier + 1}`))
  const person = await user(on.browser, on.dev.base)
  const page = await person.open('/runs?start=tell')
  await page.locator('dialog textarea').fill('wheels')
  await button(page, 'Start').click()
  const first = await ended(page, 'completed')
  await expectRunAsInApi(page, on.dev.api, first)

  await page.locator('[data-stage=story]').click()
  await button(page, 'Restart from here').click()
  await page.locator('dialog').getByRole('button', { name: 'Restart' }).click()
  await page.waitForURL((url) => !url.pathname.endsWith(encodeURIComponent(first)))
  const second = await ended(page, 'completed')
  await expectRunAsInApi(page, on.dev.api, second)
  expect(Object.keys(await stages(page))).toEqual(['title', 'story'])
  const asked = (word: string) => on.model.calls.filter((call) => call.user.startsWith(word)).length
  expect([asked('title'), asked('story')], 'only the stage from which it was restarted runs again').toEqual([1, 2])
  expect(await on.dev.api.get(`/api/v1/runs/${second}`)).toMatchObject({ from_run: first, from_stage: 'story', output: 'Story 2' })
  await page.getByRole('link', { name: first }).waitFor()
  expect(person.problems).toEqual([])
})

/** Waits until the run on the page has ended in this way, and returns its id. */
async function ended(page: Page, status: string): Promise<string> {
  await page.waitForURL(/\/runs\/.+/)
  await expect.poll(() => headStatus(page), within).toBe(status)
  return decodeURIComponent(new URL(page.url()).pathname.split('/').at(-1)!)
}

test('a workflow is authored, rehearsed, published and run without leaving the browser', async () => {
  const person = await user(on.browser, on.dev.base)
  const page = await person.open('/author')
  await button(page, 'New dialogue').first().click()
  await page.locator('dialog').getByLabel('Id of the new one').fill('three_points')
  await page.locator('dialog').getByRole('button', { name: 'Begin' }).click()
  await page.waitForURL(/\/author\/.+/)
  await page.locator('form textarea').fill('Summarise a text in three points and return it as the result of the run')
  await page.locator('form textarea').press('Enter')
  const published = page.locator('.publish').getByText('published')
  const choice = page.locator('.composer .option, .composer .questions > div button, .composer .alternatives button').or(button(page, 'Agree')).first()
  // The offline model asks, or wants agreement, until it has a draft; a new workflow that passes its rehearsal is published. A
  // choice goes away while the agent works.
  await until('the workflow is published', async () => {
    if (await published.isVisible()) return true
    if (await choice.isEnabled({ timeout: 100 }).catch(() => false)) await choice.click({ timeout: 500 }).catch(() => undefined)
    return false
  })
  await page.getByRole('tab', { name: 'Rehearsal' }).click()
  await page.getByText('passed', { exact: true }).first().waitFor()
  await page.getByRole('tab', { name: 'Try' }).click()
  await page.getByPlaceholder('Message or input').fill('one two three')
  await page.keyboard.press('Enter')
  await page.locator('li.end').waitFor()
  await page.locator('.publish').getByRole('link', { name: 'three_points' }).click()
  await page.getByRole('heading', { name: 'three_points' }).waitFor()
  await page.getByRole('link', { name: 'Start a run' }).or(button(page, 'Start a run')).first().click()
  await page.locator('dialog').locator('textarea, input[type=text]').first().fill('one two three')
  await button(page, 'Start').click()
  const run_id = await ended(page, 'completed')
  expect(await on.dev.api.get(`/api/v1/runs/${run_id}`)).toMatchObject({ workflow_id: 'three_points', status: 'completed' })
  await expectRunAsInApi(page, on.dev.api, run_id)
  expect(person.problems).toEqual([])
})

test('the playground is used by keyboard alone', async () => {
  await applyAsker(on.dev.api)
  const person = await user(on.browser, on.dev.base)
  const page = await person.open('/sessions')
  await isLive(page)
  // The navigation is behind the skip link.
  await tabTo(page, 'nav a[href$="/playground"]')
  await page.keyboard.press('Enter')
  await page.waitForURL(/\/playground/)
  await page.locator('h1:focus').waitFor()
  await tabTo(page, 'select[aria-label=Agent]')
  await page.keyboard.type('Asker')
  await expect.poll(() => page.url(), within).toContain('agent=asker')
  await tabTo(page, 'form textarea')
  await page.keyboard.type('first line')
  await page.keyboard.press('Shift+Enter')
  await page.keyboard.type('second line')
  await page.keyboard.press('Enter')
  await shown(page, 'Which colour?')
  await page.locator('form textarea:focus').waitFor()
  await tabTo(page, '.choices button', { backwards: true })
  await page.keyboard.press('Enter')
  await shown(page, 'You picked blue.')
  expect((await conversation(page)).map(({ text }) => text)).toEqual(['first line\nsecond line', 'Which colour?', 'blue', 'You picked blue.'])

  // The conversation scrolls by keyboard; the trace opens a step.
  await tabTo(page, '[role=log]', { backwards: true })
  await tabTo(page, '.trace button[aria-pressed]')
  await page.keyboard.press('Enter')
  await page.locator('.trace .detail').waitFor()
  await tabTo(page, '.topbar button[aria-expanded]', { backwards: true })
  await page.keyboard.press('Enter')
  await tabTo(page, '.topbar button[lang=zh]')
  await page.keyboard.press('Enter')
  await page.getByRole('heading', { name: '试用台' }).or(page.getByRole('heading', { level: 1 })).first().waitFor()
  expect(await page.locator('html').getAttribute('lang')).toMatch(/^zh/)
  await page.keyboard.press('Escape')
  await page.locator('.topbar .panel').waitFor({ state: 'detached' })
  expect(person.problems).toEqual([])
})
