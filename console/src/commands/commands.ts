// Commands to sessions. They travel through the session's lane, so the response says only that the queue has them.

import { post } from '$/api'
import type { IconName } from '$/components'

export type Command = 'cancel' | 'release' | 'close' | 'timers'

export const ICONS: Record<Command, IconName> = { cancel: 'stop', release: 'play', close: 'close', timers: 'timers' }

const PATHS = {
  cancel: '/api/v1/sessions/{session_id}/cancel',
  release: '/api/v1/sessions/{session_id}/release',
  close: '/api/v1/sessions/{session_id}/close',
  timers: '/api/v1/sessions/{session_id}/timers/cancel',
} as const

export function send(command: Command, session_id: string, reason: string): Promise<unknown> {
  return post(PATHS[command], { path: { session_id }, body: reason.trim() === '' ? {} : { reason: reason.trim() } })
}

/** Sends to many sessions, a few at a time. Returns the errors. */
export async function sendAll(command: Command, sessions: readonly string[], reason: string): Promise<unknown[]> {
  const errors: unknown[] = []
  const rest = [...sessions]
  const worker = async () => {
    for (let session = rest.shift(); session !== undefined; session = rest.shift()) {
      await send(command, session, reason).catch((error: unknown) => errors.push(error))
    }
  }
  await Promise.all(Array.from({ length: 4 }, worker))
  return errors
}
