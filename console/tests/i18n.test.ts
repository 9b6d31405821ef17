import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { parse, type AST } from 'svelte/compiler'
import { describe, expect, it } from 'vitest'
import type { Catalogue, Message } from '$/i18n/catalogue'

const root = join(import.meta.dirname, '..')
const files = (folder: string, ending: string): string[] =>
  readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith(ending))
    .map((name) => join(root, folder, name))
const load = async (file: string): Promise<Catalogue> => ((await import(file)) as { default: Catalogue }).default
const texts = (message: Message): string[] => (typeof message === 'string' ? [message] : Object.values(message))
const places = (message: Message) => [...new Set(texts(message).flatMap((text) => text.match(/\{\w+\}/g) ?? []))].sort()

describe('catalogues', () => {
  const english = files('src', '.en.ts')

  it('exist', () => expect(english.length).toBeGreaterThan(0))

  it.each(english)('%s has the same keys and places in Chinese', async (file) => {
    const [en, zh] = [await load(file), await load(file.replace(/\.en\.ts$/, '.zh.ts'))]
    expect(Object.keys(zh).sort()).toEqual(Object.keys(en).sort())
    for (const key of Object.keys(en)) {
      expect(places(zh[key]!), key).toEqual(places(en[key]!))
      expect(texts(zh[key]!).every((text) => text.trim() !== ''), key).toBe(true)
    }
  })
})

describe('components', () => {
  const WORDS = /\p{L}{2,}/u
  const SPOKEN = new Set(['aria-label', 'title', 'placeholder', 'alt', 'label'])
  const components = files('src', '.svelte')

  it.each(components)('%s has no text of its own, no markup from texts and no inline style', (file) => {
    const source = readFileSync(file, 'utf8')
    const found: string[] = []
    const visit = (node: unknown): void => {
      if (Array.isArray(node)) return node.forEach(visit)
      if (node === null || typeof node !== 'object') return
      const typed = node as AST.BaseNode & { name?: string; value?: unknown; data?: string }
      if (typed.type === 'HtmlTag') found.push('{@html}')
      if (typed.type === 'Text' && WORDS.test(typed.data ?? '')) found.push((typed.data ?? '').trim())
      if (typed.type === 'Attribute') {
        if (typed.name === 'style') found.push('style="…"')
        if (!SPOKEN.has(typed.name ?? '')) return visitExpressions(typed.value)
      }
      Object.values(typed).forEach(visit)
    }
    const visitExpressions = (value: unknown): void => {
      if (Array.isArray(value)) value.filter((part: { type?: string }) => part.type !== 'Text').forEach(visit)
      else if (value !== true) visit(value)
    }
    visit(parse(source, { modern: true }).fragment)
    expect(found).toEqual([])
  })

  it.each(components)('%s has at most 400 lines', (file) => {
    expect(readFileSync(file, 'utf8').split('\n').length).toBeLessThanOrEqual(400)
  })
})
