// Screenshots of the views, to look at: both themes, both languages, wide and narrow.
//
//   CONSOLE_URL=http://127.0.0.1:8080/console/ npm run shots -- /tmp/shots [NAME=/path …]
import { mkdirSync } from 'node:fs'
import { chromium } from 'playwright-core'

const [out = '/tmp/shots', ...wanted] = process.argv.slice(2)
const base = (process.env.CONSOLE_URL ?? 'http://127.0.0.1:8080/console/').replace(/\/$/, '')
const views = wanted.length > 0 ? Object.fromEntries(wanted.map((entry) => entry.split(/=(.*)/s))) : { sessions: '/sessions', playground: '/playground' }
const SIZES = { wide: { width: 1440, height: 900 }, narrow: { width: 360, height: 780 } }
const filter = (process.env.ONLY ?? '').split(',').filter(Boolean)

mkdirSync(out, { recursive: true })
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run'] })
for (const language of ['en', 'zh']) {
  for (const theme of ['light', 'dark']) {
    for (const [size, viewport] of Object.entries(SIZES)) {
      if (filter.length > 0 && !filter.every((word) => [language, theme, size].includes(word))) continue
      const context = await browser.newContext({ viewport, locale: language === 'zh' ? 'zh-CN' : 'en-GB', timezoneId: 'Asia/Shanghai' })
      await context.addInitScript(([chosen, tone]) => {
        localStorage.setItem('turnwheel.language', chosen)
        localStorage.setItem('turnwheel.theme', tone)
      }, [language, theme])
      const page = await context.newPage()
      page.on('console', (message) => ['error', 'warning'].includes(message.type()) && console.log(`${page.url()}: ${message.text()}`))
      page.on('pageerror', (error) => console.log(`${page.url()}: ${error.message}`))
      for (const [name, path] of Object.entries(views)) {
        await page.goto(base + path)
        await page.waitForTimeout(Number(process.env.WAIT ?? 900))
        const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
        if (overflow > 0) console.log(`${name} ${language} ${theme} ${size}: ${overflow} px wider than the window`)
        await page.screenshot({ path: `${out}/${name}-${language}-${theme}-${size}.png`, fullPage: process.env.FULL === '1' })
      }
      await context.close()
    }
  }
}
await browser.close()
