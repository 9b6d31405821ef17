import { translator } from './catalogue'
import en from './common.en'
import zh from './common.zh'

export { translator, type Catalogue, type Message, type Translate, type Translation, type Values } from './catalogue'
export { LANGUAGES, locale, type Language } from './locale.svelte'
export * as format from './format'

/** Texts of the shell and of the shared components. A view has its own: `translator(en, zh)` with its two catalogues. */
export const common = translator(en, zh)
export type CommonKey = keyof typeof en
