import en from './messages.en'
import { t } from './messages'

/** Name of a kind of step; an unknown kind is its own name. */
export function kindName(kind: string): string {
  const key = `kind.${kind}`
  return key in en ? t(key as keyof typeof en) : kind
}
