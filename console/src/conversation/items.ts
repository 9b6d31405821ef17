// The messages of a conversation: the session's history, then replies and messages that the history lacks.

import type { Schema } from '$/api'
import type { Growing, ReplyEvent } from './texts'

export type Entry = Schema<'Entry'>

export interface Item {
  key: string
  role: 'user' | 'assistant' | 'human'
  text: string
  at: string
  turn_id: string | null
  kind: string | null
  metadata: Record<string, unknown>
  /** The text is still being written. */
  growing?: boolean
  /** The queue has the message, and no turn has taken it yet. */
  pending?: boolean
}

/** A message that this page has sent. */
export interface Sent {
  job_id: string
  text: string
  at: string
}

const roleOf = (reply: ReplyEvent): Item['role'] => (reply.kind === 'handoff' && reply.reply_id.endsWith('/human') ? 'human' : 'assistant')

export function items(history: readonly Entry[], sent: readonly Sent[], replies: readonly ReplyEvent[], growing: Growing | null): Item[] {
  const list: Item[] = history.map((entry, index) => ({
    key: `h${index}/${entry.at}`,
    role: entry.role as Item['role'],
    text: entry.text,
    at: entry.at,
    turn_id: entry.turn_id ?? null,
    kind: entry.kind ?? null,
    metadata: (entry.metadata ?? {}) as Record<string, unknown>,
  }))
  const fresh: Item[] = sent.map((message) => ({
    key: `m/${message.job_id}`,
    role: 'user' as const,
    text: message.text,
    at: message.at,
    turn_id: message.job_id,
    kind: null,
    metadata: {},
    pending: true,
  }))
  for (const reply of replies) {
    fresh.push({
      key: reply.reply_id,
      role: roleOf(reply),
      text: reply.text,
      at: reply.at,
      turn_id: reply.turn_id,
      kind: reply.kind,
      metadata: (reply.metadata ?? {}) as Record<string, unknown>,
    })
  }
  const taken = new Set(fresh.filter((item) => item.role !== 'user').map((item) => item.turn_id))
  if (growing) taken.add(growing.turn_id)
  for (const item of fresh) if (item.pending && taken.has(item.turn_id)) item.pending = false
  // A reply belongs after the message of its turn, also if this page's clock is ahead.
  fresh.sort((a, b) => (a.turn_id === b.turn_id ? Number(a.role !== 'user') - Number(b.role !== 'user') : a.at.localeCompare(b.at)))
  list.push(...fresh)
  if (growing) {
    list.push({ key: `g/${growing.turn_id}`, role: 'assistant', text: growing.text, at: growing.at, turn_id: growing.turn_id, kind: 'chunk', metadata: {}, growing: true })
  }
  return list
}

/** Whether the history has this reply: it then leaves the replies of the events. */
export function inHistory(history: readonly Entry[], ended: ReadonlySet<string>): (reply: ReplyEvent) => boolean {
  const turns = new Set(history.map((entry) => entry.turn_id))
  const texts = new Set(history.map((entry) => `${entry.turn_id}\n${entry.text.trim()}`))
  return (reply) => (ended.has(reply.turn_id) && turns.has(reply.turn_id)) || texts.has(`${reply.turn_id}\n${reply.text.trim()}`)
}
