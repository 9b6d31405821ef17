// What pages show, to compare it with the API.

import type { Page } from 'playwright-core'
import { expect } from 'vitest'
import type { Api } from './api'
import { DEADLINE } from './until'

const within = { timeout: DEADLINE }

export interface Said {
  role: string
  text: string
}

/** The messages of the conversation on a page, from top to bottom. */
export const conversation = (page: Page): Promise<Said[]> =>
  page.locator('[role=log] > ol > li:has(.bubble)').evaluateAll((items) =>
    items.map((item) => ({ role: ['user', 'assistant', 'human'].find((role) => item.classList.contains(role))!, text: item.querySelector('.bubble p')!.textContent!.trim() })),
  )

/** The status in the heading of a page. */
export const headStatus = async (page: Page): Promise<string> => (await page.locator('main .title .pill').first().textContent())!.trim()

export async function expectSessionAsInApi(page: Page, api: Api, session_id: string): Promise<void> {
  const session = await api.get(`/api/v1/sessions/${session_id}`)
  const said = (session.history as Said[]).map(({ role, text }) => ({ role, text: text.trim() }))
  await expect.poll(() => conversation(page), within).toEqual(said)
  await expect.poll(() => headStatus(page), within).toBe(session.workflow_state.status)
}

/** States of the stages on the page of a run, by their paths. */
export const stages = (page: Page): Promise<Record<string, string>> =>
  page.locator('[data-stage]').evaluateAll((items) => Object.fromEntries(items.map((item) => [(item as HTMLElement).dataset.stage!, item.querySelector('.pill')!.textContent!.trim()])))

export async function expectRunAsInApi(page: Page, api: Api, run_id: string): Promise<void> {
  const run = await api.get(`/api/v1/runs/${run_id}`)
  const timeline = Object.fromEntries((run.timeline as { path: string; status: string }[]).map(({ path, status }) => [path, status]))
  await expect.poll(() => stages(page), within).toEqual(timeline)
  await expect.poll(() => headStatus(page), within).toBe(run.status)
}

/** Writes a message in the composer of the playground. */
export async function say(page: Page, text: string): Promise<void> {
  await page.locator('form textarea').fill(text)
  await page.locator('form textarea').press('Enter')
}

/** Waits until a message of the agent has exactly this text. */
export const shown = (page: Page, text: string) => page.locator('li.assistant .bubble p').getByText(text, { exact: true }).last().waitFor()

/** Waits until the page has loaded its data. */
export async function settled(page: Page): Promise<void> {
  await page.locator('main h1').first().waitFor()
  await page.waitForFunction(() => !document.querySelector('.skeleton, [aria-busy=true]'))
}

/** Changes the address as a link does, without loading the program again. */
export const visit = (page: Page, address: string) =>
  page.evaluate((to) => {
    history.pushState(null, '', `/console${to}`)
    dispatchEvent(new PopStateEvent('popstate'))
  }, address)

/** Goes to another view, and waits until it has its data. */
export async function go(page: Page, view: string): Promise<void> {
  // By way of another page, so that the view is made again.
  for (const address of ['/nowhere', view]) await visit(page, address)
  await settled(page)
}

/** Replaces the whole text of the editor by pasting another one. */
export async function write(page: Page, text: string): Promise<void> {
  await page.locator('.cm-content').click()
  await page.keyboard.press('Control+A')
  await page.locator('.cm-content').evaluate((editor, pasted) => {
    const clipboardData = new DataTransfer()
    clipboardData.setData('text/plain', pasted)
    editor.dispatchEvent(new ClipboardEvent('paste', { clipboardData, bubbles: true, cancelable: true, composed: true }))
  }, text)
}
