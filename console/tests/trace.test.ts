import { describe, expect, it } from 'vitest'
import { modelOutput } from '$/trace/decision'
import { LiveTurn } from '$/trace/live-turn'
import { rowsOf, type Step } from '$/trace/rows'
import { scale } from '$/trace/scale'
import type { LiveEvent } from '$/live/protocol'

const DAY = 86_400_000
const step = (key: string, kind: string, end: number, ms: number): Step => ({ key, kind, target: 'x', input_hash: '', output: null, ok: true, ms, at: new Date(end).toISOString() })

describe('scale', () => {
  it('folds a gap of days and keeps the rest to scale', () => {
    const axis = scale([
      { start: 0, end: 100 },
      { start: 3 * DAY, end: 3 * DAY + 300 },
    ])
    expect(axis.gaps).toHaveLength(1)
    const first = axis.at(100) - axis.at(0)
    const second = axis.at(3 * DAY + 300) - axis.at(3 * DAY)
    expect(second / first).toBeCloseTo(3)
    expect(axis.at(3 * DAY + 300)).toBeCloseTo(1)
    expect(axis.gaps[0]!.to - axis.gaps[0]!.from).toBeLessThan(0.05)
  })

  it('folds nothing where work goes on', () => {
    expect(scale([{ start: 0, end: 1000 }, { start: 1200, end: 2000 }, { start: 0, end: 5000 }]).gaps).toEqual([])
  })

  it('is monotonic and within 0 and 1, with many gaps, too', () => {
    const spans = Array.from({ length: 60 }, (_, index) => ({ start: index * 10_000, end: index * 10_000 + 50 }))
    const axis = scale(spans)
    let last = -1
    for (let time = -100; time < 620_000; time += 777) {
      const place = axis.at(time)
      expect(place).toBeGreaterThanOrEqual(Math.max(0, last))
      expect(place).toBeLessThanOrEqual(1)
      last = place
    }
  })

  it('has an axis for a turn without steps', () => {
    expect(scale([]).at(0)).toBe(0)
    expect(scale([{ start: 5, end: 5 }]).at(5)).toBe(0)
  })

  it('takes 500 steps in no time', () => {
    const spans = Array.from({ length: 500 }, (_, index) => ({ start: index * 7919, end: index * 7919 + 100 }))
    const begin = performance.now()
    const axis = scale(spans)
    for (const span of spans) axis.at(span.start)
    expect(performance.now() - begin).toBeLessThan(200)
  })
})

describe('rowsOf', () => {
  it('orders by begin, what contains others first', () => {
    const rows = rowsOf([step('0/act', 'skill', 400, 50), step('0/decide', 'model', 300, 200), step('1/flow/a/0/model', 'model', 900, 100), step('1/flow', 'flow', 1000, 200)])
    expect(rows.map((row) => row.key)).toEqual(['0/decide', '0/act', '1/flow', '1/flow/a/0/model'])
    expect(rows.map((row) => row.depth)).toEqual([0, 0, 0, 3])
  })
})

describe('modelOutput', () => {
  it('reads phase 1, phase 2, coordinators and texts', () => {
    const one = modelOutput('{"decision":{"action":{"params":{"id":1},"target":"q","type":"SKILL"},"next_status":"processing","reasoning":"r","response":null},"plan":{"name":"n"}}')
    expect([one.phase, one.plan, one.decision?.action]).toEqual([1, { name: 'n' }, { type: 'SKILL', target: 'q', params: { id: 1 } }])
    const two = modelOutput('{"action":null,"next_status":"typing","reasoning":"r","response":"Hi"}')
    expect([two.phase, two.decision?.response]).toEqual([2, 'Hi'])
    const coordinator = modelOutput('{"answer":{"action":null,"decisions":[{"confidence":1.0,"decision_type":"respond","payload":{"a":1}}],"intent":"X","reasoning":"r"},"plan":{}}')
    expect(coordinator.decision?.decisions).toEqual([{ decision_type: 'respond', confidence: 1, payload: { a: 1 } }])
    expect(modelOutput({ content: 'text', tokens: {} })).toMatchObject({ phase: null, content: 'text' })
    expect(modelOutput('not JSON')).toMatchObject({ phase: null, content: 'not JSON' })
    expect(modelOutput(null)).toMatchObject({ phase: null, content: null })
  })
})

describe('LiveTurn', () => {
  const live = (type: LiveEvent['type'], event: Record<string, unknown>): LiveEvent => ({ seq: 1, type, session_id: 's', channel: 'c', event })

  it('grows with the events of its turn', () => {
    let turn = new LiveTurn('s', 'm-1')
    turn = turn.with(live('status', { turn_id: 'm-1', status: 'processing', at: '2026-01-01T00:00:00Z' }))
    turn = turn.with(live('step', { turn_id: 'm-1', key: '0/decide', kind: 'model', target: 'default', ok: true, ms: 20 }), 1000)
    turn = turn.with(live('run', { type: 'branch_started', root_run_id: 'r', path: 'risk', depth: 0 }), 1010)
    expect(turn.rows.map((row) => [row.target, row.start, row.end])).toEqual([['default', 980, 1000], ['risk', 1010, null]])
    turn = turn.with(live('run', { type: 'branch_completed', root_run_id: 'r', path: 'risk', depth: 0, error: null }), 1050)
    expect(turn.rows[1]).toMatchObject({ end: 1050, ok: true })
    turn = turn.with(live('status', { turn_id: 'm-1', status: 'ready', at: '2026-01-01T00:00:01Z', turn: { jobs: ['m-1'], outcome: 'answered', replies: 1, attempts: 1 } }))
    expect(turn.end?.outcome).toBe('answered')
    expect(turn.with(live('step', { turn_id: 'm-2', key: '0/decide' }))).toBe(turn)
  })

  it('shows a step from its begin, and ends it once', () => {
    const begin = { turn_id: 'm-1', key: '0/decide', kind: 'model', target: 'default', ok: true, ms: 300, phase: 'begin', attempt: 1 }
    let turn = new LiveTurn('s', 'm-1').with(live('step', begin), 1000)
    expect(turn.rows).toMatchObject([{ key: '0/decide', start: 700, end: null }])
    turn = turn.with(live('step', { ...begin, phase: undefined, attempt: undefined, ms: 900 }), 1600)
    expect(turn.rows).toMatchObject([{ start: 700, end: 1600, ok: true }])
    expect(turn.with(live('step', { ...begin, attempt: 2 }), 1700).rows).toBe(turn.rows)
    expect(turn.with(live('step', { ...begin, key: '1/act', phase: 'paused' })).rows).toBe(turn.rows)
  })

  it('ends what a cancelled turn has left', () => {
    let turn = new LiveTurn('s', 'm-1').with(live('step', { turn_id: 'm-1', key: '0/act', kind: 'skill', ms: 300, phase: 'begin' }), 1000)
    turn = turn.with(live('status', { turn_id: 'm-1', status: 'cancelled', at: '2026-01-01T00:00:01Z', turn: { jobs: ['m-1'], outcome: 'cancelled', replies: 0, attempts: 1 } }), 1500)
    expect(turn.rows).toMatchObject([{ end: 1500, ok: false }])
    expect(turn.end?.outcome).toBe('cancelled')
  })
})
