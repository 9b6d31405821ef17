// Sending: one message at a time, with a job_id of its own, which a repeat keeps.

import { request } from '$/api'
import type { SessionView, Sent } from '$/conversation'

export interface Origin {
  user_id: string
  channel: string
}

/** The agent that handles a message; without a version, the applied one. */
export interface Recipient {
  agent_id: string | undefined
  agent_version?: string
}

const KEY = 'turnwheel.playground'

export function id(prefix: string): string {
  return `${prefix}-${crypto.getRandomValues(new Uint32Array(2)).reduce((text, part) => text + part.toString(36), '').slice(0, 10)}`
}

export function storedOrigin(): Origin {
  const defaults: Origin = { user_id: 'playground', channel: 'playground' }
  try {
    return { ...defaults, ...(JSON.parse(localStorage.getItem(KEY) ?? '{}') as Partial<Origin>) }
  } catch {
    return defaults
  }
}

export function storeOrigin(origin: Origin): void {
  localStorage.setItem(KEY, JSON.stringify(origin))
}

export class Sender {
  busy = $state(false)
  error = $state.raw<unknown>(undefined)
  /** The last message that the queue has taken. */
  last = $state.raw<Sent | null>(null)
  /** A message that may or may not have arrived: it is sent again with the same id. */
  unsure = $state.raw<Sent | null>(null)

  async send(view: SessionView, to: Recipient, text: string, origin: Origin): Promise<boolean> {
    return this.post(view, to, { job_id: id('m'), text, at: new Date().toISOString() }, origin)
  }

  async post(view: SessionView, to: Recipient, message: Sent, origin: Origin): Promise<boolean> {
    this.busy = true
    this.error = undefined
    try {
      const { job_id, text } = message
      await request('POST', '/api/v1/messages', { body: { session_id: view.session_id, ...to, job_id, text, ...origin } })
      this.last = message
      this.unsure = null
      view.said(message)
      return true
    } catch (error) {
      this.error = error
      this.unsure = message
      return false
    } finally {
      this.busy = false
    }
  }
}
