// Handoffs at the API: conversations that a human has or shall get.

import { request, type Schema } from '$/api'
import { account } from '$/api/account.svelte'

export type Claim = Schema<'Claim'>
export type Note = Schema<'Note'>
export type Handoff = Schema<'Handoff'>
export type HandoffEntry = Schema<'HandoffSummary'>
export type HandoffList = Schema<'HandoffList'>

export const STATES = ['waiting', 'mine', 'all'] as const
export type State = (typeof STATES)[number]

export interface HandoffFilter {
  state: State
  agent_id?: string
  channel?: string
  limit?: number
  after?: string
}

/** Name under which the user claims. Without a login the gateway knows none, and takes the one in the body. */
export const me = (): string => account.me?.name ?? ''

export const isMine = (claim: Claim | null | undefined): boolean => claim?.by === me()

export function handoffs(filter: HandoffFilter, signal?: AbortSignal): Promise<HandoffList> {
  const by = account.me?.login === 'none' ? me() : undefined
  return request('GET', '/api/v1/handoffs', { query: { ...filter, by }, signal })
}

function command<T>(name: string, session_id: string, body: Record<string, unknown> = {}): Promise<T> {
  return request('POST', `/api/v1/sessions/{session_id}/${name}`, { path: { session_id }, body: { by: me(), ...body } })
}

/** The user gets the claim. `take_over` interrupts the agent where it has the conversation. */
export const claim = (session_id: string, take_over = false) => command<Handoff>('claim', session_id, take_over ? { take_over } : {})
export const unclaim = (session_id: string) => command<Handoff>('unclaim', session_id)
/** `force`: somebody else has the claim. */
export const transfer = (session_id: string, to: string, note = '', force = false) =>
  command<Handoff>('transfer', session_id, { to, ...(note === '' ? {} : { note }), ...(force ? { force } : {}) })
export const note = (session_id: string, text: string) => command<unknown>('notes', session_id, { text })
export const release = (session_id: string, words: string) => command<unknown>('release', session_id, words === '' ? {} : { note: words })
export const reply = (session_id: string, text: string) => command<unknown>('reply', session_id, { text })

/** Shortest time between two signs of typing, in ms: the API takes no more. */
const TYPING = 3000
const typed = new Map<string, number>()

/** Tells colleagues that the user writes in a session. It may fail without harm. */
export function typing(session_id: string): void {
  const now = Date.now()
  if (now - (typed.get(session_id) ?? 0) < TYPING) return
  typed.set(session_id, now)
  void command('typing', session_id).catch(() => undefined)
}
