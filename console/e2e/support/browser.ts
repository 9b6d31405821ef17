// Chromium for the tests.

import { chromium as engine, type Browser, type BrowserContext, type BrowserContextOptions, type Page } from 'playwright-core'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { chromium, ROOT } from './programs'
import { DEADLINE } from './until'

const FLAGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync']

export const launch = (flags: string[] = []): Promise<Browser> => engine.launch({ executablePath: chromium(), args: [...FLAGS, ...flags] })

export type Language = 'en' | 'zh'
export type Theme = 'light' | 'dark'

export interface Look extends BrowserContextOptions {
  language?: Language
  theme?: Theme
  /** Browsers without shared workers, such as Chrome on Android. */
  withoutSharedWorker?: boolean
}

/** A user's browser until the test ends: cookies and the event stream of its own. `problems` collects what must not happen on any page. */
export interface User {
  context: BrowserContext
  base: string
  problems: string[]
  /** All requests of its pages. */
  requests: string[]
  open(path: string): Promise<Page>
  login(token: string): Promise<void>
}

export async function user(browser: Browser, base: string, look: Look = {}): Promise<User> {
  const { language = 'en', theme = 'light', withoutSharedWorker, ...options } = look
  const context = await browser.newContext({
    viewport: { width: 1280, height: 800 },
    locale: language === 'zh' ? 'zh-CN' : 'en-GB',
    timezoneId: 'Asia/Shanghai',
    reducedMotion: 'reduce',
    ...options,
  })
  onTestFinished(async ({ task }) => {
    if (task.result?.state === 'fail') await keepPictures(context, task.name)
    await context.close()
  })
  context.setDefaultTimeout(DEADLINE)
  await context.addInitScript(
    ([chosen, tone]) => {
      // Before its first address a page has no storage.
      if (location.origin === 'null') return
      localStorage.setItem('turnwheel.language', chosen!)
      localStorage.setItem('turnwheel.theme', tone!)
    },
    [language, theme],
  )
  if (withoutSharedWorker) await context.addInitScript(() => Reflect.deleteProperty(globalThis, 'SharedWorker'))
  const problems: string[] = []
  const requests: string[] = []
  context.on('page', (page) => {
    page.on('pageerror', (error) => problems.push(`${page.url()}: ${error.stack ?? error.message}`))
    page.on('console', (message) => {
      const text = message.text()
      // The browser reports each response with an error; whether it was expected, the tests check themselves.
      if (message.type() === 'error' && !text.startsWith('Failed to load resource')) problems.push(`${page.url()}: ${text}`)
    })
    page.on('dialog', (dialog) => {
      problems.push(`${page.url()}: a script has opened a dialog: ${dialog.message()}`)
      void dialog.dismiss()
    })
  })
  context.on('request', (request) => requests.push(request.url()))
  return {
    context,
    base,
    problems,
    requests,
    async open(path) {
      const page = await context.newPage()
      await page.goto(`${base}/console${path}`)
      return page
    },
    async login(token) {
      const response = await context.request.post(`${base}/api/v1/login`, { data: { token }, headers: { origin: base } })
      if (!response.ok()) throw new Error(`login: ${response.status()} ${await response.text()}`)
    },
  }
}

/** Of a failed test: pictures of its pages in `target/tmp/e2e`. */
async function keepPictures(context: BrowserContext, test: string): Promise<void> {
  const name = test.replace(/\W+/g, '-').slice(0, 60)
  for (const [index, page] of context.pages().entries()) {
    const path = join(ROOT, 'target/tmp/e2e', `${name}-${index}.png`)
    await page.screenshot({ path }).then(
      () => console.error(`${page.url()}: ${path}`),
      () => undefined,
    )
  }
}

/** The badge in the top bar says that the page is live. */
export const isLive = (page: Page) => page.locator('.topbar button.live').waitFor()
