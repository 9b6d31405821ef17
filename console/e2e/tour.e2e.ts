// The README's five minutes in the browser: its addresses and its words, as they are written. On `turnwheel dev`.

import type { Page } from 'playwright-core'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { isLive, user, type User } from './support/browser'
import { installation } from './support/installation'
import { conversation, headStatus, say, write } from './support/pages'
import { ROOT } from './support/programs'
import { DEADLINE, until } from './support/until'

const on = installation({ files: true })

const within = { timeout: DEADLINE }
const README = readFileSync(join(ROOT, 'README.md'), 'utf8').split('\n## Five minutes\n')[1]!.split('\n## ')[0]!

/** A numbered step of the tour. */
function step(number: number): string {
  const [, text] = README.split(`\n${number}. **`)
  if (!text) throw new Error(`the tour has no step ${number}`)
  return text.split(`\n${number + 1}. **`)[0]!
}

/** What the reader types: texts in backticks that are not ASCII. */
const words = (number: number) => [...step(number).matchAll(/`([^`]+)`/g)].map(([, code]) => code!.replace(/\s+/g, ' ')).filter((code) => /[^\x00-\x7f]/.test(code) && !code.startsWith('cargo'))

/** The path of the step's address in the console. */
const path = (number: number) => /<http:\/\/127\.0\.0\.1:8080\/console([^>]+)>/.exec(step(number))![1]!

/** Waits until the last message on the page is one of the agent with this text in it. */
async function answered(page: Page, text: string): Promise<void> {
  const last = async () => (await conversation(page)).at(-1)
  await expect.poll(last, within).toMatchObject({ role: 'assistant', text: expect.stringContaining(text) as unknown })
}

const menu = (page: Page, name: string) => page.locator('nav').getByRole('link', { name, exact: true }).click()
const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true })

async function talk(person: User): Promise<Page> {
  const page = await person.open(path(1))
  await isLive(page)
  const [hello, question] = words(1)
  await say(page, hello!)
  await answered(page, '')
  await say(page, question!)
  await answered(page, '已发货')
  expect((await conversation(page)).map(({ text }) => text).join('\n')).toContain('您好，我是小智')
  await page.locator('.trace button[aria-pressed]').first().waitFor()
  return page
}

async function look(page: Page): Promise<void> {
  await menu(page, 'Sessions')
  await page.locator('tbody').getByRole('link', { name: 'tour' }).first().click()
  await answered(page, '已发货')
  await page.locator('main a[href*="/turns/"]').first().click()
  await page.locator('main button[aria-pressed]').first().click()
  await page.locator('.detail').waitFor()
}

async function kill(page: Page): Promise<void> {
  await page.goto(`${on.dev.base}/console${path(1)}`)
  await isLive(page)
  await say(page, words(3)[0]!)
  const asked = async () => (await fetch('http://127.0.0.1:8090/log')).text()
  await until('the slow action runs', async () => (await asked()).includes('SLOW-1'))
  await on.dev.kill()
  await page.locator('.topbar button.offline').waitFor()
  await on.dev.start()
  await answered(page, '3 天')
  await isLive(page)
}

async function change(page: Page): Promise<void> {
  await menu(page, 'Agents')
  await page.locator('tbody').getByRole('link', { name: 'sales' }).first().click()
  await page.getByRole('tab', { name: 'Edit' }).click()
  const file = () => readFileSync(join(on.dev.folder, 'agents/sales.yaml'), 'utf8')
  await write(page, file().replace('greeting: 您好', 'greeting: 早上好'))
  await page.locator('.state').getByText('no findings').waitFor()
  await button(page, 'Apply').click()
  await page.locator('dialog[open]').getByRole('button', { name: 'Apply' }).click()
  await expect.poll(file, within).toContain('greeting: 早上好')
  await page.goto(`${on.dev.base}/console${path(1)}`)
  await say(page, words(1)[0]!)
  await expect.poll(async () => (await conversation(page)).map(({ text }) => text).join('\n'), within).toContain('早上好，我是小智')
}

async function run(page: Page): Promise<void> {
  await menu(page, 'Workflows')
  await page.locator('tbody').getByRole('link', { name: 'research_workflow' }).first().click()
  await page.getByRole('link', { name: 'Start a run' }).or(button(page, 'Start a run')).first().click()
  await page.locator('dialog').locator('textarea, input[type=text]').first().fill(words(6)[0]!)
  await button(page, 'Start').click()
  await page.waitForURL(/\/runs\/.+/)
  await expect.poll(() => headStatus(page), within).toBe('completed')
  const run_id = decodeURIComponent(new URL(page.url()).pathname.split('/').at(-1)!)
  await page.locator('[data-stage=plan]').waitFor()
  expect((await on.dev.api.get(`/api/v1/runs/${run_id}`)).output).toContain(`研究报告：${words(6)[0]}`)
}

async function planner(page: Page): Promise<void> {
  await page.goto(`${on.dev.base}/console${path(7)}`)
  await isLive(page)
  await say(page, words(7)[0]!)
  await answered(page, '共 3 个数，合计 16')
}

async function author(page: Page): Promise<void> {
  await menu(page, 'Author')
  await button(page, 'New dialogue').first().click()
  await page.locator('dialog').getByRole('button', { name: 'Begin' }).click()
  await page.waitForURL(/\/author\/.+/)
  const [wanted, yes] = words(8)
  await page.locator('form textarea').fill(wanted!)
  await page.locator('form textarea').press('Enter')
  await button(page, 'Agree').waitFor()
  await page.locator('form textarea').fill(yes!)
  await page.locator('form textarea').press('Enter')
  await page.locator('.publish').getByText('published').waitFor()
}

test("the README's five minutes work in the browser", async () => {
  const person = await user(on.browser, on.dev.base)
  const page = await talk(person)
  await look(page)
  await kill(page)
  await change(page)
  await run(page)
  await planner(page)
  await author(page)
  expect(person.problems).toEqual([])
})
