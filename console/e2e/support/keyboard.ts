// Moving by the Tab key.

import type { Page } from 'playwright-core'

const MOST = 120

/** Presses Tab until an element that matches has the focus. Each element on the way has to show that it has the focus. */
export async function tabTo(page: Page, selector: string, { backwards = false } = {}): Promise<void> {
  const way: string[] = []
  for (let presses = 0; presses < MOST; presses++) {
    await page.keyboard.press(backwards ? 'Shift+Tab' : 'Tab')
    const { matches, name, visible } = await page.evaluate((wanted) => {
      const element = document.activeElement as HTMLElement
      // A field may show the focus on the box around it.
      const shows = (at: Element | null, levels: number): boolean => {
        if (!at || levels === 0) return false
        const { outlineStyle, outlineWidth } = getComputedStyle(at)
        return (outlineStyle !== 'none' && outlineWidth !== '0px') || shows(at.parentElement, levels - 1)
      }
      return { matches: element.matches(wanted), name: element.outerHTML.slice(0, 160), visible: element === document.body || shows(element, 2) }
    }, selector)
    if (!visible) throw new Error(`this element does not show that it has the focus: ${name}`)
    if (matches) return
    way.push(name)
  }
  throw new Error(`no Tab leads to ${selector}; it led to\n${way.slice(0, 40).join('\n')}`)
}
