// Measurements: how slow this machine is now (it may be small, or busy with other programs), and where figures go.

import { appendFileSync } from 'node:fs'
import type { Browser } from 'playwright-core'
import { user } from './browser'

/** Time in ms in which an idle machine of two cores shows a page without data. */
const SHELL = 200

/** By how much limits of times have to be longer here: 1 on an idle machine. For use within a test. */
export async function slowness(browser: Browser, base: string): Promise<number> {
  const times: number[] = []
  for (let index = 0; index < 3; index++) {
    const person = await user(browser, base)
    const page = await person.open('/nowhere')
    await page.locator('main h1').waitFor()
    times.push(await page.evaluate(() => performance.now()))
    await person.context.close()
  }
  return Math.max(1, Math.min(...times) / SHELL)
}

/** Prints a figure, and appends it to the file `E2E_FIGURES`. */
export function note(line: string): void {
  console.log(line)
  if (process.env.E2E_FIGURES) appendFileSync(process.env.E2E_FIGURES, `${line}\n`)
}
