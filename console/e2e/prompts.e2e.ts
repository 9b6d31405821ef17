// The prompt of a model call, as the model server got it. On `turnwheel dev`, which keeps prompts.

import { expect, test } from 'vitest'
import { user } from './support/browser'
import { installation } from './support/installation'
import { plan, says } from './support/model'
import { DEADLINE, until } from './support/until'

const on = installation({ scripted: true })

test('a turn shows the prompt exactly as the model got it', async () => {
  on.model.script(() => plan(says('好的')))
  await on.dev.api.put('/api/v1/agents/asked', { id: 'asked', name: '小智', model: 'scripted', sop: '1. 问候\n2. "Quotes" & <tags>' })
  await on.dev.api.post('/api/v1/messages', { session_id: 'prompted', agent_id: 'asked', user_id: 'u1', job_id: 'm-1', text: '你好 <b>&amp;' })
  await until('the turn has ended', async () => (await on.dev.api.send('GET', '/api/v1/sessions/prompted/turns/m-1')).ok)
  const person = await user(on.browser, on.dev.base)
  const page = await person.open('/sessions/prompted/turns/m-1')
  await page.locator('button[aria-pressed]').filter({ hasText: 'scripted' }).first().click()
  await page.getByRole('tab', { name: 'Prompt' }).click()
  const texts = page.locator('ol > li > pre')
  await expect.poll(() => texts.count(), { timeout: DEADLINE }).toBe(on.model.calls[0]!.texts.length)
  expect(await texts.allTextContents()).toEqual(on.model.calls[0]!.texts)
  expect(person.problems).toEqual([])
})
