// Attacks on a login, and the rights of each role in a browser. On `turnwheel dev` with tokens.

import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { isLive, launch, user, type User } from './support/browser'
import { applyEcho } from './support/fixtures'
import { go, say, settled, shown } from './support/pages'
import { foreignPage } from './support/servers'
import { startDev, tokenOf, type Role, type System } from './support/system'
import { until } from './support/until'

let browser: Browser
let dev: System
const COOKIE = 'turnwheel_session'

beforeAll(async () => {
  ;[browser, dev] = await Promise.all([launch(), startDev({ tokens: true })])
  await applyEcho(dev.api)
  await dev.api.post('/api/v1/messages', { session_id: 'victim', agent_id: 'echo', job_id: 'm-1', text: 'hello', user_id: 'u1' })
  await until('the session exists', async () => (await dev.api.send('GET', '/api/v1/sessions/victim/turns/m-1')).ok)
})
afterAll(async () => {
  await browser?.close()
  await dev?.stop()
})

async function signIn(page: Page, token: string): Promise<void> {
  await page.getByLabel('Token').fill(token)
  await page.getByRole('button', { name: 'Sign in' }).click()
}

async function loggedIn(role: Role): Promise<User> {
  const person = await user(browser, dev.base)
  await person.login(tokenOf(role))
  return person
}

/** A request of the page's own script. */
const request = (page: Page, method: string, path: string, body?: object) =>
  page.evaluate(
    async ([verb, address, content]) => {
      const response = await fetch(address!, { method: verb, headers: content ? { 'content-type': 'application/json' } : {}, body: content })
      return { status: response.status, text: await response.text() }
    },
    [method, path, body && JSON.stringify(body)] as [string, string, string | undefined],
  )

const message = { session_id: 'victim', agent_id: 'echo', text: 'from an attacker', user_id: 'u1' }
const turns = async () => (await dev.api.get('/api/v1/sessions/victim/turns')).turns.length as number

describe('a login', () => {
  test('begins and ends in the browser, and leaves the token nowhere', async () => {
    const person = await user(browser, dev.base)
    const page = await person.open('/sessions')
    await signIn(page, 'not-a-token-of-this-gateway')
    await page.getByRole('alert').waitFor()
    await signIn(page, tokenOf('operator'))
    await page.locator('tbody').getByText('victim').waitFor()
    await isLive(page)

    const kept = await page.evaluate(() => JSON.stringify([document.cookie, location.href, { ...localStorage }, { ...sessionStorage }, history.state]))
    expect(kept).not.toContain(tokenOf('operator'))
    const [cookie] = await person.context.cookies()
    expect(cookie).toMatchObject({ name: COOKIE, httpOnly: true, sameSite: 'Strict', path: '/' })
    expect(cookie!.value).not.toContain(tokenOf('operator'))
    expect(person.requests.filter((url) => url.includes('token-of-the-tests'))).toEqual([])

    await page.getByRole('button', { name: 'Account and appearance' }).click()
    await page.getByRole('button', { name: 'Sign out' }).click()
    await page.getByLabel('Token').waitFor()
    expect(await person.context.cookies()).toEqual([])
    // The event stream of the ended login is closed, too.
    await until('no stream is open', async () => /^turnwheel_event_streams 0$/m.test(await (await dev.api.send('GET', '/metrics')).text()))
    expect(person.problems).toEqual([])
  })

  test('cannot be forged', async () => {
    const person = await loggedIn('viewer')
    const [cookie] = await person.context.cookies()
    const [content, signature] = cookie!.value.split('.') as [string, string]
    const text = Buffer.from(content, 'base64url').toString()
    const forged = {
      'another name': `${Buffer.from(text.replaceAll('viewer', 'admin')).toString('base64url')}.${signature}`,
      'a later end': `${Buffer.from(text.replace(/\d{10,}/, (end) => String(Number(end) * 2))).toString('base64url')}.${signature}`,
      'no signature': `${content}.`,
      'another signature': `${content}.${signature.split('').reverse().join('')}`,
    }
    for (const [what, value] of Object.entries(forged)) {
      expect(value, what).not.toBe(cookie!.value)
      await person.context.addCookies([{ ...cookie!, value }])
      const response = await person.context.request.get(`${dev.base}/api/v1/me`)
      expect(response.status(), what).toBe(401)
    }
    const page = await person.open('/sessions')
    await page.getByLabel('Token').waitFor()
    expect(await page.getByText('victim').count()).toBe(0)
  })

  test('does not come from a token in an address', async () => {
    const person = await user(browser, dev.base)
    const token = tokenOf('admin')
    for (const path of [`/api/v1/sessions?token=${token}`, `/api/v1/sessions?access_token=${token}`, `/api/v1/me?authorization=Bearer%20${token}`, `/api/v1/events?token=${token}`]) {
      expect((await fetch(`${dev.base}${path}`)).status, path).toBe(401)
    }
    const page = await person.open(`/sessions?token=${token}#token=${token}`)
    await page.getByLabel('Token').waitFor()
    expect(await person.context.cookies()).toEqual([])
  })
})

describe('another origin', () => {
  /** A page of another port: the same site, so that the browser sends the cookie along. */
  async function attack(html: string): Promise<{ page: Page; person: User; close: () => Promise<void> }> {
    const evil = await foreignPage(() => `<!doctype html><title>evil</title>${html}`)
    const person = await loggedIn('admin')
    const page = await person.context.newPage()
    await page.goto(evil.base)
    return { page, person, close: evil.stop }
  }

  test('changes nothing with the login of a user', async () => {
    const before = await turns()
    const { page, person, close } = await attack(
      `<form method="post" enctype="text/plain" action="${dev.base}/api/v1/messages"><input name='${JSON.stringify({ ...message, x: '' }).slice(0, -2)}' value='"}'></form>`,
    )
    const refused = page.waitForResponse((response) => response.url().endsWith('/cancel'))
    await page.evaluate((base) => fetch(`${base}/api/v1/sessions/victim/cancel`, { method: 'POST', mode: 'no-cors', credentials: 'include' }), dev.base)
    expect((await refused).status()).toBe(403)
    const [response] = await Promise.all([page.waitForNavigation(), page.evaluate(() => document.forms[0]!.submit())])
    expect(response!.status()).toBe(403)
    // The browser had the cookie and sent it: only the rule of the gateway protects.
    const direct = await person.context.request.post(`${dev.base}/api/v1/messages`, { data: message, headers: { origin: 'https://evil.example' } })
    expect([direct.status(), (await direct.json()).error.code]).toEqual([403, 'foreign_origin'])
    expect(await turns()).toBe(before)
    expect((await dev.api.get('/api/v1/sessions/victim')).workflow_state.status).toBe('ready')
    await close()
  })

  test('reads nothing, and cannot show the console in a frame', async () => {
    const { page, close } = await attack(`<iframe src="${dev.base}/console/sessions"></iframe>`)
    const read = await page.evaluate((base) => fetch(`${base}/api/v1/sessions`, { credentials: 'include' }).then((response) => response.text(), (error: Error) => error.name), dev.base)
    expect(read).toBe('TypeError')
    await page.waitForLoadState()
    const frame = page.frames().find((each) => each !== page.mainFrame())
    expect(await frame?.locator('.shell').count()).toBe(0)
    await close()
  })
})

describe('in the browser', () => {
  test('a viewer reads, and posts nothing', async () => {
    const before = await turns()
    const person = await loggedIn('viewer')
    const page = await person.open('/')
    await page.waitForURL(/\/sessions$/)
    await page.locator('tbody').getByText('victim').waitFor()
    expect(await page.locator('nav').getByText('Playground').count()).toBe(0)
    expect(await page.locator('tbody input[type=checkbox]').count()).toBe(0)
    await page.goto(`${dev.base}/console/sessions/victim`)
    await page.getByText('You said: hello').waitFor()
    expect(await page.locator('header .actions').getByRole('button').count()).toBe(0)
    await page.goto(`${dev.base}/console/playground`)
    await page.getByText('This view needs the role “admin”.').waitFor()
    await page.goto(`${dev.base}/console/agents/echo?tab=edit`)
    expect(await page.locator('.cm-content').getAttribute('contenteditable')).toBe('false')
    // Past the page, with the login that it has.
    for (const [method, path, body] of [
      ['POST', '/api/v1/messages', message],
      ['POST', '/api/v1/sessions/victim/cancel', {}],
      ['POST', '/api/v1/sessions/victim/reply', { text: 'hello' }],
      ['PUT', '/api/v1/agents/echo', { id: 'echo', name: 'x', sop: 'x' }],
      ['DELETE', '/api/v1/sessions/victim', undefined],
    ] as const) {
      expect((await request(page, method, path, body)).status, `${method} ${path}`).toBe(403)
    }
    expect(await turns()).toBe(before)
  })

  test.each<Role>(['viewer', 'agent', 'operator', 'author'])('the views of the role %s ask for nothing that it may not have', async (role) => {
    const person = await loggedIn(role)
    const refused: string[] = []
    person.context.on('response', (response) => response.status() === 403 && refused.push(response.url()))
    const page = await person.open('/')
    await settled(page)
    const links = await page.locator('nav[aria-label=Views] a').evaluateAll((all) => all.map((link) => (link as HTMLAnchorElement).pathname.replace('/console', '')))
    const further = ['/sessions/victim', '/sessions/victim/turns/m-1', '/agents/echo?tab=sessions', '/workflows/simple_pipeline?tab=runs', '/runs?start=simple_pipeline', '/knowledge?agent_id=sales']
    for (const view of [...links, ...(role === 'author' ? [] : further)]) await go(page, view)
    expect(refused).toEqual([])
    expect(person.problems).toEqual([])
  })

  test('an author writes dialogues and sees nothing else', async () => {
    const person = await loggedIn('author')
    const page = await person.open('/')
    await page.waitForURL(/\/author$/)
    await page.getByRole('button', { name: 'New dialogue' }).first().waitFor()
    expect(await page.locator('nav li').allTextContents()).toEqual([expect.stringContaining('Author')])
    await page.goto(`${dev.base}/console/sessions`)
    await page.getByText('This view needs the role “viewer”.').waitFor()
    expect((await request(page, 'GET', '/api/v1/sessions')).status).toBe(403)
  })

  test('an administrator talks as a user', async () => {
    const person = await loggedIn('admin')
    const page = await person.open('/playground?agent=echo')
    await isLive(page)
    await say(page, 'is it me?')
    await shown(page, 'You said: is it me?')
    expect(person.problems).toEqual([])
  })

  test('an operator closes a conversation, talks with nobody, and does not see the audit trail', async () => {
    const person = await loggedIn('operator')
    const page = await person.open('/')
    await page.waitForURL(/\/inbox$/)
    expect(await page.locator('nav').getByText(/Audit|Playground/).count()).toBe(0)
    await page.goto(`${dev.base}/console/audit`)
    await page.getByText('This view needs the role “admin”.').waitFor()
    await page.goto(`${dev.base}/console/sessions/victim`)
    await page.getByRole('button', { name: 'Close' }).first().click()
    await page.locator('dialog').getByRole('button', { name: 'Close' }).last().click()
    await page.locator('.title').getByText('closed').waitFor()
    // The command is the operator's, by the name of the token.
    const { entries } = await dev.api.get('/api/v1/audit?limit=1000')
    expect(entries).toContainEqual(expect.objectContaining({ by: 'operator', role: 'operator', target: 'session/victim' }))
    expect(person.problems).toEqual([])
  })
})
