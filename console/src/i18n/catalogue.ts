// Texts by key. Each view has its own catalogue in both languages next to its component (messages.en.ts, messages.zh.ts), so
// that it is loaded with the view. `common` has the texts of the shell and of the shared components.

import { number, pluralOf } from './format'
import { locale, type Language } from './locale.svelte'

/** A text with `{name}` for values, or one for each plural form of `{count}`. */
export type Message = string | { one?: string; other: string }
export type Catalogue = Record<string, Message>
export type Values = Record<string, string | number>

/** Catalogue in another language: the same keys. A missing key is an error of the type check. */
export type Translation<C extends Catalogue> = { [K in keyof C]: Message }

export type Translate<C extends Catalogue> = (key: keyof C & string, values?: Values) => string

export function translator<C extends Catalogue>(en: C, zh: Translation<C>): Translate<C> {
  const catalogues: Record<Language, Translation<C>> = { en, zh }
  return (key, values) => render(catalogues[locale.language][key] ?? key, values)
}

function render(message: Message, values: Values | undefined): string {
  const text = typeof message === 'string' ? message : plural(message, values)
  if (!values) return text
  return text.replace(/\{(\w+)\}/g, (whole, name: string) => {
    const value = values[name]
    if (value === undefined) return whole
    return typeof value === 'number' ? number(value) : value
  })
}

function plural(message: { one?: string; other: string }, values: Values | undefined): string {
  const count = values?.count
  if (typeof count !== 'number' || message.one === undefined) return message.other
  return pluralOf(count) === 'one' ? message.one : message.other
}
