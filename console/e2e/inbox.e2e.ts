// The inbox: a conversation is handed over, two people claim it, one answers and hands it back. On `turnwheel dev` with tokens.

import type { Page } from 'playwright-core'
import { expect, test } from 'vitest'
import { isLive, user, type User } from './support/browser'
import { applyDesk, deskOf } from './support/fixtures'
import { installation } from './support/installation'
import { Gate, plan, says } from './support/model'
import { tokenOf, type Role } from './support/system'
import { until } from './support/until'

const on = installation({ scripted: true, tokens: true }, ({ dev }) => applyDesk(dev.api))

const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true })
const session = (id: string) => on.dev.api.get(`/api/v1/sessions/${id}`)
const send = (session_id: string, job_id: string, text: string) => on.dev.api.post('/api/v1/messages', { session_id, agent_id: 'desk', user_id: `mei-${session_id}`, job_id, text })

async function at(role: Role, path: string): Promise<[User, Page]> {
  const person = await user(on.browser, on.dev.base)
  await person.login(tokenOf(role))
  const page = await person.open(path)
  await isLive(page)
  return [person, page]
}

test('two people claim a conversation, one answers it, and the agent knows what was said', async () => {
  on.model.script(deskOf('The agent again.'))
  const [[agent, first], [operator, second]] = [await at('agent', '/inbox'), await at('operator', '/inbox')]
  await send('refund', 'm-1', '转人工')
  for (const page of [first, second]) await page.getByRole('link', { name: /mei-refund/ }).first().waitFor()
  const seen = Date.now()
  const { since } = (await session('refund')).handoff
  expect(seen - Date.parse(since), 'it is in both inboxes within a second').toBeLessThan(1000)
  for (const page of [first, second]) await page.getByRole('link', { name: /mei-refund/ }).first().click()
  // Both have the button before either uses it: the first claim takes it away from the other person.
  const buttons = await Promise.all([first, second].map((page) => button(page, 'Take over').elementHandle()))
  await Promise.all(buttons.map((claim) => claim!.evaluate((element: HTMLElement) => element.click())))
  const by: string = await until('one of them has the claim', async () => (await session('refund')).handoff.claim?.by)
  const [winner, loser] = by === 'agent' ? [first, second] : [second, first]
  await loser.getByText('answers this conversation').waitFor()
  expect(await loser.locator('.foot textarea').count(), 'the other one reads').toBe(0)

  await winner.locator('.foot textarea').fill('This is Li. 退款 20 euro, agreed?')
  await winner.locator('.foot textarea').press('Enter')
  await loser.locator('[role=log]').getByText('This is Li. 退款 20 euro, agreed?').waitFor()
  await send('refund', 'm-2', 'Agreed')
  await winner.locator('[role=log]').getByText('Agreed', { exact: true }).waitFor()
  expect(on.model.calls.length, 'the agent is silent').toBe(1)

  await button(winner, 'Hand back').first().click()
  await winner.locator('dialog textarea').fill('Paid on the 1st of March')
  await winner.locator('dialog').getByRole('button', { name: 'Hand back' }).click()
  await until('the agent has it again', async () => (await session('refund')).workflow_state.status === 'ready')
  await loser.getByText('has this conversation').waitFor()
  await send('refund', 'm-3', 'When?')
  await winner.goto(`${on.dev.base}/console/sessions/refund`)
  await winner.locator('[role=log]').getByText('The agent again.').waitFor()
  const prompt = on.model.calls.at(-1)!.texts.join('\n')
  for (const text of ['退款 20 euro, agreed?', 'Agreed', 'Paid on the 1st of March']) expect(prompt).toContain(text)
  const said = (await session('refund')).history.filter(({ text }: { text: string }) => text.includes('Paid on'))
  expect(said.every(({ role }: { role: string }) => role !== 'assistant'), 'the user does not get the note').toBe(true)
  expect([...agent.problems, ...operator.problems]).toEqual([])
})

test('a conversation is taken over in the middle of a turn, and the agent says nothing more', async () => {
  const gate = new Gate()
  on.model.script(async (call) => {
    await gate.pass()
    return call.schema === 'plan_and_decision' ? plan(says('Too late')) : says('Much too late')
  })
  await send('taken', 'm-1', 'Hello')
  await until('the model is asked', async () => on.model.calls.length > 0)
  const [person, page] = await at('agent', '/sessions/taken')
  await page.getByRole('link', { name: 'Take over' }).first().click()
  await page.locator('dialog').getByRole('button', { name: 'Take over' }).click()
  await until('the person has it', async () => (await session('taken')).handoff?.claim?.by === 'agent')
  gate.openAll()
  await page.locator('.foot textarea').fill('A human here.')
  await page.locator('.foot textarea').press('Enter')
  await page.locator('[role=log]').getByText('A human here.').waitFor()
  const history = (await session('taken')).history as { role: string; text: string }[]
  expect(history.map(({ role, text }) => [role, text])).toEqual([['user', 'Hello'], ['human', 'A human here.']])
  const { handoffs } = await on.dev.api.get('/api/v1/handoffs?state=all')
  const ofThisTest = handoffs.filter(({ session_id }: { session_id: string }) => session_id === 'taken')
  expect(ofThisTest.map(({ taken_over }: { taken_over: boolean }) => taken_over)).toEqual([true])
  expect(person.problems).toEqual([])
})

test('a claimer who leaves loses the claim, also if everything is killed and started again meanwhile', async () => {
  await on.dev.api.put('/api/v1/agents/brief', { id: 'brief', name: 'Brief', model: 'scripted', sop: 'Hand over.', handoff: { mode: 'hold', claim_timeout: '4s' } })
  on.model.script(deskOf('The agent again.'))
  const [[leaving, first], [, second]] = [await at('agent', '/inbox'), await at('operator', '/inbox')]
  await on.dev.api.post('/api/v1/messages', { session_id: 'left', agent_id: 'brief', user_id: 'mei-left', job_id: 'm-1', text: '转人工' })
  await first.getByRole('link', { name: /mei-left/ }).first().click()
  await button(first, 'Take over').click()
  const ends: string = await until('it is claimed', async () => (await session('left')).handoff.claim?.until)
  await leaving.context.close()
  await on.dev.kill()
  expect(Date.now(), 'the claim has time left').toBeLessThan(Date.parse(ends))
  await second.locator('.topbar button.offline').waitFor()
  await on.dev.start()
  await isLive(second)
  const unclaimed = async () => ((await session('left')).handoff.claim ? null : Date.now())
  expect(await until('the claim has ended', unclaimed)).toBeGreaterThanOrEqual(Date.parse(ends))
  await second.getByRole('link', { name: /mei-left/ }).first().click()
  await button(second, 'Take over').click()
  await until('another person has it', async () => (await session('left')).handoff.claim?.by === 'operator')
})
