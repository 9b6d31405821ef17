// Agents as YAML: findings at their line, a draft that is tried, applying, a colleague's change, and the way back. On `turnwheel dev`.

import type { Page } from 'playwright-core'
import { expect, test } from 'vitest'
import { user } from './support/browser'
import { applyEcho, echo } from './support/fixtures'
import { installation } from './support/installation'
import { say, shown, write } from './support/pages'
import { DEADLINE } from './support/until'

const on = installation({}, ({ dev }) => applyEcho(dev.api))

const within = { timeout: DEADLINE }
const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true })
const yaml = (says: string, name = 'Echo') =>
  `# 回声\nid: echo\nname: ${name}\nmodel: default\nsop: Repeat what the user says.\nrules:\n  - when: {always: true}\n    decide: {next_status: typing, response: "${says} {message}"}\n`
const hash = async () => (await on.dev.api.get('/api/v1/agents/echo')).hash as string

async function apply(page: Page, note: string): Promise<void> {
  await button(page, 'Apply').click()
  await page.locator('dialog[open] input').fill(note)
  await page.locator('dialog[open]').getByRole('button', { name: 'Apply' }).click()
}

test('an agent is changed, tried as a draft, applied, and brought back', async () => {
  const before = await hash()
  const person = await user(on.browser, on.dev.base)
  const page = await person.open('/agents/echo?tab=edit')
  await page.locator('.cm-content').waitFor()
  await write(page, '# 回声\nid: echo\nname: Echo\nsop： 重复\n')
  await button(page, 'Line 4').first().waitFor()
  expect(await button(page, 'Apply').isDisabled(), 'nobody applies it with an error').toBe(true)

  await write(page, yaml('Draft:'))
  await page.locator('.state').getByText('no findings').waitFor()
  await button(page, 'Try').click()
  await page.waitForURL(/\/playground.*version=/)
  await say(page, 'hi')
  await shown(page, 'Draft: hi')
  expect(await hash(), 'users keep what is applied').toBe(before)
  const other = await on.dev.api.post('/api/v1/messages', { session_id: 'user', agent_id: 'echo', job_id: 'm-1', text: 'hi' })
  expect(other.job_id).toBe('m-1')
  await expect.poll(async () => (await on.dev.api.send('GET', '/api/v1/sessions/user')).json().then((session: any) => session.history?.at(-1)?.text), within).toBe('You said: hi')

  await page.goto(`${on.dev.base}/console/agents/echo?tab=edit`)
  await page.getByText('Your text of an earlier visit is back').waitFor()
  await page.locator('.state').getByText('no findings').waitFor()
  await apply(page, 'as tried')
  await expect.poll(hash, within).not.toBe(before)
  const applied = await hash()

  await page.getByRole('tab', { name: 'Versions' }).click()
  await page.locator('ol li').getByText('as tried').waitFor()
  await page.locator('ol li a').filter({ hasText: before.slice(0, 8) }).click()
  await button(page, 'Go back to this').click()
  await page.locator('dialog[open]').getByRole('button').last().click()
  await expect.poll(hash, within).toBe(before)
  const { versions } = await on.dev.api.get('/api/v1/agents/echo/versions')
  expect(versions.filter(({ current }: { current: boolean }) => current)).toHaveLength(1)
  expect(versions.map((version: { hash: string }) => version.hash)).toContain(applied)
  expect(person.problems).toEqual([])
})

test("a colleague's change meanwhile is merged, and nothing of it is lost", async () => {
  await on.dev.api.put('/api/v1/agents/echo', echo)
  const person = await user(on.browser, on.dev.base)
  const page = await person.open('/agents/echo?tab=edit')
  await page.locator('.cm-content').waitFor()
  await write(page, yaml('You said:', 'Echo of mine'))
  await page.locator('.state').getByText('no findings').waitFor()
  await on.dev.api.put('/api/v1/agents/echo', { ...echo, sop: 'Repeat it, says a colleague.' })
  const theirs = await hash()
  await apply(page, 'mine')
  await page.locator('dialog[open]').getByText('has changed it').waitFor()
  expect(await hash(), 'nothing is overwritten').toBe(theirs)
  expect(person.problems).toEqual([])
})
