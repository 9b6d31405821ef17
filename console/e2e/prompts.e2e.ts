// The prompt of a model call, as the model server got it. On `turnwheel dev`, which keeps prompts.

import type { Browser } from 'playwright-core'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { launch, user } from './support/browser'
import { plan, says, startModel, type Model } from './support/model'
import { startDev, type System } from './support/system'
import { DEADLINE, until } from './support/until'

let browser: Browser
let model: Model
let dev: System

beforeAll(async () => {
  model = await startModel()
  ;[browser, dev] = await Promise.all([launch(), startDev({ model: model.base })])
})
afterAll(async () => {
  await browser?.close()
  await dev?.stop()
  await model?.stop()
})

test('a turn shows the prompt exactly as the model got it', async () => {
  model.script(() => plan(says('好的')))
  await dev.api.put('/api/v1/agents/asked', { id: 'asked', name: '小智', model: 'scripted', sop: '1. 问候\n2. "Quotes" & <tags>' })
  await dev.api.post('/api/v1/messages', { session_id: 'prompted', agent_id: 'asked', user_id: 'u1', job_id: 'm-1', text: '你好 <b>&amp;' })
  await until('the turn has ended', async () => (await dev.api.send('GET', '/api/v1/sessions/prompted/turns/m-1')).ok)
  const person = await user(browser, dev.base)
  const page = await person.open('/sessions/prompted/turns/m-1')
  await page.locator('button[aria-pressed]').filter({ hasText: 'scripted' }).first().click()
  await page.getByRole('tab', { name: 'Prompt' }).click()
  const texts = page.locator('ol > li > pre')
  await expect.poll(() => texts.count(), { timeout: DEADLINE }).toBe(model.calls[0]!.texts.length)
  expect(await texts.allTextContents()).toEqual(model.calls[0]!.texts)
  expect(person.problems).toEqual([])
})
