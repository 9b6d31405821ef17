// The job of a turn in a few words.

import { translator } from '$/i18n'
import en from './job.en'
import zh from './job.zh'

const t = translator(en, zh)

export function jobType(job: unknown): string {
  const type = String((job as { type?: unknown } | null)?.type ?? '')
  return type in en ? t(type as keyof typeof en) : type
}

export function jobText(job: unknown): string {
  const { text, name, message, command, run_id, reason } = (job ?? {}) as Record<string, unknown>
  if (typeof text === 'string' && text !== '') return text
  if (typeof name === 'string' && name !== '') return typeof message === 'string' ? `${name}: ${message}` : name
  if (typeof command === 'string') return typeof reason === 'string' && reason !== '' ? `${command}: ${reason}` : command
  return typeof run_id === 'string' ? run_id : ''
}
