import { describe, expect, it } from 'vitest'
import { concerns } from '$/handoff'
import { shortcuts } from '$/views/inbox/keys'
import type { LiveEvent } from '$/live/protocol'

const event = (type: LiveEvent['type'], payload: Record<string, unknown>, session_id = 's1'): LiveEvent => ({ seq: 1, type, session_id, channel: 'web', event: payload })
const none = () => false

describe('a listing of handoffs', () => {
  it('changes with handoffs, and with messages to a human', () => {
    expect(concerns([event('handoff', { change: 'claimed' })], none)).toBe(true)
    expect(concerns([event('turn', { turn: { outcome: 'transferred' } })], none)).toBe(true)
    expect(concerns([event('turn', { turn: { outcome: 'noop' } })], (session_id) => session_id === 's1')).toBe(true)
  })

  it('stays as it is while other conversations go on and colleagues type', () => {
    expect(concerns([event('turn', { turn: { outcome: 'answered' } })], none)).toBe(false)
    expect(concerns([event('handoff', { change: 'typing' })], () => true)).toBe(false)
  })
})

describe('shortcuts', () => {
  const target = (tagName: string, inside: string | null = null) => ({ tagName, isContentEditable: false, closest: () => inside, blurred: 0, blur() { this.blurred++ } })
  const press = (key: string, on = target('BODY'), more: Partial<KeyboardEvent> = {}) => {
    const done: string[] = []
    const handler = shortcuts({ j: () => done.push('j'), Enter: () => done.push('Enter'), Escape: () => done.push('Escape') })
    handler({ key, target: on, preventDefault() {}, ...more } as unknown as KeyboardEvent)
    return done
  }
  const page = (dialog: object | null) => ((globalThis as Record<string, unknown>).document = { querySelector: () => dialog })

  it('leave fields, dialogs and key combinations alone', () => {
    page(null)
    expect(press('j')).toEqual(['j'])
    expect(press('j', target('TEXTAREA'))).toEqual([])
    expect(press('j', target('BODY'), { ctrlKey: true })).toEqual([])
    page({})
    expect(press('j')).toEqual([])
  })

  it('let Escape leave a field first, and Enter follow a link', () => {
    page(null)
    const field = target('TEXTAREA')
    expect([press('Escape', field), field.blurred]).toEqual([[], 1])
    expect(press('Escape')).toEqual(['Escape'])
    expect(press('Enter', target('A', 'link'))).toEqual([])
    expect(press('Enter')).toEqual(['Enter'])
  })
})
