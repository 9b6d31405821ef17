import { translator } from '$/i18n'
import en from './template.en'
import zh from './template.zh'

/** Text with which a new document begins. */
export const template = translator(en, zh)
