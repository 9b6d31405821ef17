import { describe, expect, it } from 'vitest'
import { inHistory, items, type Entry } from '$/conversation/items'
import { Texts, type ReplyEvent } from '$/conversation/texts'
import { filtersOf, timeOf, touch, type SessionRow } from '$/views/sessions/listing'
import type { LiveEvent } from '$/live/protocol'

let count = 0
const reply = (fields: Partial<ReplyEvent>): ReplyEvent => ({
  reply_id: `s/m-1/${count++}`,
  session_id: 's',
  agent_id: 'a',
  user_id: 'u',
  channel: 'c',
  turn_id: 'm-1',
  kind: 'response',
  text: '',
  seq: 0,
  at: '2026-01-01T00:00:00.000Z',
  metadata: {},
  ...fields,
})
const chunk = (stream_id: string, seq: number, text: string, more: Partial<ReplyEvent> = {}) => reply({ kind: 'chunk', stream_id, seq, text, ...more })

describe('Texts', () => {
  it('lets a text grow, and a stream replace another one', () => {
    const texts = new Texts()
    for (const piece of [chunk('a', 0, '从前有'), chunk('a', 1, '座山'), chunk('a', 1, '座山'), chunk('b', 0, '从前有个', { supersedes: 'a' }), chunk('a', 2, 'x'), chunk('b', 1, '和尚')]) texts.reply(piece)
    expect(texts.growing?.text).toBe('从前有个和尚')
    texts.reply(reply({ reply_id: 'f', kind: 'final', stream_id: 'b', text: '从前有个和尚。' }))
    texts.reply(reply({ reply_id: 'f', kind: 'final', stream_id: 'b', text: '从前有个和尚。' }))
    expect(texts.growing).toBeNull()
    expect(texts.replies.map((entry) => entry.text)).toEqual(['从前有个和尚。'])
  })

  it('ignores a stream whose beginning was missed', () => {
    const texts = new Texts()
    texts.reply(chunk('a', 3, 'end'))
    expect(texts.growing).toBeNull()
  })

  it('completes an open text at the end of its turn', () => {
    const texts = new Texts()
    texts.reply(chunk('a', 0, 'x'))
    texts.end('m-0')
    expect(texts.growing).not.toBeNull()
    texts.end('m-1')
    expect(texts.growing).toBeNull()
  })
})

describe('items', () => {
  const history: Entry[] = [
    { role: 'user', text: 'Hi', at: '2026-01-01T00:00:00.000Z', turn_id: 'm-1' },
    { role: 'assistant', text: 'Hello', at: '2026-01-01T00:00:01.000Z', turn_id: 'm-1', kind: 'response' },
  ]

  it('show nothing twice that the history has', () => {
    const texts = new Texts()
    texts.reply(reply({ turn_id: 'm-1', text: 'Hello ' }))
    texts.reply(reply({ turn_id: 'm-2', text: 'New' }))
    texts.drop(inHistory(history, new Set()))
    expect(items(history, [], texts.replies, null).map((item) => item.text)).toEqual(['Hi', 'Hello', 'New'])
  })

  it('drop a cut text of a turn that has ended', () => {
    const texts = new Texts()
    texts.reply(reply({ turn_id: 'm-1', text: 'a longer text than the history keeps' }))
    texts.drop(inHistory(history, new Set(['m-1'])))
    expect(texts.replies).toEqual([])
  })

  it('put a reply after the message of its turn, whatever the clocks say', () => {
    const sent = [{ job_id: 'm-2', text: 'Question', at: '2026-01-01T01:00:00.000Z' }]
    const list = items(history, sent, [reply({ turn_id: 'm-2', text: 'Answer', at: '2026-01-01T00:30:00.000Z' })], null)
    expect(list.map((item) => item.text)).toEqual(['Hi', 'Hello', 'Question', 'Answer'])
    expect(list[2]!.pending).toBe(false)
  })
})

describe('touch', () => {
  const row = (session_id: string, status: SessionRow['status'] = 'ready'): SessionRow => ({ session_id, agent_id: 'a', user_id: 'u', channel: 'c', kind: 'chat', status, timers: 0, created_at: '', updated_at: '' })
  const status = (session_id: string, value: string): LiveEvent => ({ seq: 1, type: 'status', session_id, channel: 'c', event: { status: value, at: '2026-01-01T00:00:00Z', reason: null } })

  it('moves what has changed to the front', () => {
    const rows = touch([row('a'), row('b'), row('c')], [status('c', 'typing'), status('b', 'typing'), status('x', 'ready')], {})
    expect(rows.map((entry) => `${entry.session_id} ${entry.status}`)).toEqual(['b typing', 'c typing', 'a ready'])
  })

  it('drops what the filter excludes now', () => {
    expect(touch([row('a'), row('b')], [status('b', 'typing')], { status: 'ready' }).map((entry) => entry.session_id)).toEqual(['a'])
  })
})

describe('filters of sessions', () => {
  it('come from the address; what the API would refuse counts as none', () => {
    const filters = filtersOf(new URLSearchParams('status=ready&agent_id=a&channel=web&user_id=u&waiting=true&since=24h&until=2026-01-02T03:04&q= refund  A1 &tab=x'))
    expect(filters).toEqual({ status: 'ready', agent_id: 'a', channel: 'web', user_id: 'u', waiting: 'true', since: '24h', until: '2026-01-02T03:04', q: 'refund  A1' })
    expect(filtersOf(new URLSearchParams('status=open&waiting=perhaps&since=yesterday&q= '))).toEqual({})
  })

  it('name times before now, or of the user’s zone', () => {
    const now = Date.parse('2026-01-02T00:00:00Z')
    expect(timeOf('24h', now)).toBe('2026-01-01T00:00:00.000Z')
    expect(timeOf('2026-01-02T03:04', now)).toBe(new Date(2026, 0, 2, 3, 4).toISOString())
    expect(timeOf(undefined, now)).toBeUndefined()
  })
})
