// Every view with hostile data, in both languages and themes, wide and narrow. On `turnwheel dev`.

import axe from 'axe-core'
import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { launch, user, type Language, type Theme } from './support/browser'
import { go, visit } from './support/pages'
import { SECRET, SECRET_ENVIRONMENT, SECRET_SETTINGS, seed, viewsOf } from './support/seed'
import { echoServer, refusingProxy, type Local } from './support/servers'
import { ROLES, startDev, tokenOf, type System } from './support/system'

let browser: Browser
let dev: System
let echo: Local
let proxy: Local
let views: string[]

beforeAll(async () => {
  ;[echo, proxy] = await Promise.all([echoServer(), refusingProxy()])
  // Requests to other hosts than this one would go to the proxy, also those of workers.
  ;[browser, dev] = await Promise.all([
    launch([`--proxy-server=${proxy.base}`]),
    startDev({ tokens: true, settings: SECRET_SETTINGS, env: SECRET_ENVIRONMENT }),
  ])
  views = viewsOf(await seed(dev.api, echo.base))
})
afterAll(async () => {
  await browser?.close()
  await dev?.stop()
  await Promise.all([echo?.stop(), proxy?.stop()])
})

const theme = (page: Page, name: Theme) => page.evaluate((value) => (document.documentElement.dataset.theme = value), name)

/** Loads axe-core, and ends transitions: colours change at once. */
async function prepare(page: Page): Promise<void> {
  await page.evaluate(axe.source)
  await page.evaluate(() => {
    const sheet = new CSSStyleSheet()
    sheet.replaceSync('* { transition: none !important; animation: none !important }')
    document.adoptedStyleSheets = [sheet]
  })
}

const IMPACTS = ['serious', 'critical']

/** Findings of axe-core that are at least serious. */
async function accessibility(page: Page, rules?: string[]): Promise<string[]> {
  const only = rules ? { type: 'rule' as const, values: rules } : undefined
  const { violations } = await page.evaluate((runOnly) => (globalThis as unknown as { axe: typeof axe }).axe.run(document, { resultTypes: ['violations'], ...(runOnly ? { runOnly } : {}) }), only)
  return violations.filter(({ impact }) => IMPACTS.includes(impact ?? '')).map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.target.join(' ')).join(', ')}`)
}

/** What makes the page wider than its window; empty if nothing does. */
const overflow = (page: Page): Promise<string[]> =>
  page.evaluate(() => {
    const { scrollWidth, clientWidth } = document.documentElement
    if (scrollWidth <= clientWidth) return []
    const wide = [...document.querySelectorAll('main *')].filter((element) => element.getBoundingClientRect().right > clientWidth + 0.5)
    return [`${scrollWidth - clientWidth} px too wide: ${wide.slice(-3).map((element) => element.outerHTML.slice(0, 120)).join(' | ')}`]
  })

async function inspect(page: Page, view: string, rules?: string[]): Promise<string[]> {
  const problems: string[] = []
  const note = (what: string, found: string[]) => problems.push(...found.map((each) => `${view}, ${what}: ${each}`))
  await go(page, view)
  await theme(page, 'light')
  note('light', await accessibility(page, rules))
  await theme(page, 'dark')
  note('dark', await accessibility(page, ['color-contrast']))
  await page.setViewportSize(NARROW)
  note('360 px', await overflow(page))
  await page.setViewportSize(WIDE)
  const html = await page.content()
  for (const secret of SECRETS) if (html.includes(secret)) note('secrets', [`the page has ${secret}`])
  if (await page.locator('#injected, img[onerror], script:not([src])').count()) note('markup', ['a text has become HTML'])
  return problems
}

/** Chromium asks these for itself, whatever its flags; the last one only after a minute. */
const OWN_HOSTS = ['content-autofill.googleapis.com', 'accounts.google.com', 'android.clients.google.com', 'update.googleapis.com']
/** The host of what a proxy is asked for: `HOST:443` or a whole address. */
const hostOf = (asked: string) => new URL(asked.includes('://') ? asked : `https://${asked}`).hostname
/** Rules that depend on texts: the language cannot change the others. */
const RULES_OF_TEXTS = ['color-contrast', 'button-name', 'link-name', 'label', 'select-name', 'document-title', 'html-has-lang', 'html-lang-valid', 'valid-lang', 'aria-command-name', 'empty-heading']
const WIDE = { width: 1280, height: 800 }
const NARROW = { width: 360, height: 780 }
const SECRETS = [SECRET, ...ROLES.map(tokenOf)]

describe.each<Language>(['en', 'zh'])('each view in %s', (language) => {
  test('is accessible in both themes, fits 360 px, shows markup as text and no secret', async () => {
    const person = await user(browser, dev.base, { language })
    await person.login(tokenOf('admin'))
    // Two pages at a time, as many as most machines have processors.
    const waiting = [...views]
    const findings: string[] = []
    const work = async () => {
      const page = await person.open('/sessions')
      await prepare(page)
      for (let view = waiting.shift(); view !== undefined; view = waiting.shift()) findings.push(...(await inspect(page, view, language === 'en' ? undefined : RULES_OF_TEXTS)))
    }
    await Promise.all([work(), work()])
    expect(findings).toEqual([])
    expect(person.problems).toEqual([])
    expect(person.requests.filter((url) => new URL(url).origin !== dev.base)).toEqual([])
    expect(proxy.seen.filter((asked) => !OWN_HOSTS.includes(hostOf(asked))), 'hosts that something in the browser has asked for').toEqual([])
  }, 120_000)
})

test('the texts with markup are on the pages, as text', async () => {
  const person = await user(browser, dev.base)
  await person.login(tokenOf('admin'))
  const page = await person.open('/sessions/loud-1')
  const places = ['/sessions/loud-1', '/agents/loud', '/workflows/loud_graph', '/runs/run-line', '/runs/run-failed', '/dead/1', '/knowledge?agent_id=loud&query=wheel', '/sessions/loud-2?tab=json']
  for (const place of places) {
    await go(page, place)
    await page.getByText('<b id="injected">bold</b>').or(page.getByText('<b id=\\"injected\\">bold</b>')).first().waitFor()
  }
  // The API had the secret and has repeated it.
  expect(echo.seen).toContain(SECRET)
  await go(page, '/sessions/loud-1')
  await page.getByText('***').first().waitFor()
  expect(person.problems).toEqual([])
})

test('a view that fails is in the log of the browser, and another item of it is shown', async () => {
  const person = await user(browser, dev.base)
  await person.login(tokenOf('admin'))
  // A response that no view can show.
  await person.context.route('**/api/v1/runs/broken', (route) => route.fulfill({ json: { run_id: 'broken', workflow_id: 'loud_line', status: 'completed', timeline: 5 } }))
  const page = await person.open('/runs/broken')
  await page.locator('main').getByRole('button', { name: 'Try again' }).waitFor()
  expect(person.problems).toEqual([expect.stringContaining('/runs/broken')])
  // The view stays the same: only its item changes.
  await visit(page, '/runs/run-line')
  await page.getByRole('heading', { name: 'run-line' }).waitFor()
})

test('the login, a view without the right to it, and an unknown address are accessible, too', async () => {
  const person = await user(browser, dev.base)
  const page = await person.open('/sessions')
  const check = async () => {
    await prepare(page)
    expect(await accessibility(page)).toEqual([])
    await page.setViewportSize(NARROW)
    expect(await overflow(page)).toEqual([])
  }
  await page.getByLabel('Token').waitFor()
  await check()
  await person.login(tokenOf('viewer'))
  for (const [place, text] of [['/audit', /needs the role/], ['/nowhere', /no such page/]] as const) {
    await page.goto(`${dev.base}/console${place}`)
    await page.getByText(text).waitFor()
    await check()
  }
})
