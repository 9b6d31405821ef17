import { ApiError } from '$/api'
import { common } from '$/i18n'

/** Message and hint of an error: the API's own words, or the console's where the gateway did not answer. */
export function errorText(error: unknown): { message: string; hint: string | null; code: string | null } {
  if (!(error instanceof ApiError)) return { message: error instanceof Error ? error.message : String(error), hint: null, code: null }
  if (error.code === 'unreachable') return { message: common('error.unreachable'), hint: common('error.unreachable_hint'), code: null }
  if (error.code === 'unreadable') return { message: common('error.unreadable'), hint: common('error.unreadable_hint'), code: String(error.status) }
  const hint = error.hint ?? (error.code === 'forbidden' ? common('error.forbidden_hint') : null)
  return { message: error.message, hint, code: error.code }
}
