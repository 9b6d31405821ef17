import { translator } from '$/i18n'
import en from './messages.en'
import zh from './messages.zh'

export const t = translator(en, zh)
