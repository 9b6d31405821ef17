import { beforeEach, describe, expect, it, vi } from 'vitest'
import { ApiError } from '$/api'
import { marksOf, type Documents, type Text } from '$/document/documents'
import { Editing } from '$/views/documents/editing.svelte'

const version = (hash: string, text: string): Text => ({ hash, text, at: null, by: 'anna', note: null })
const settle = () => vi.runAllTimersAsync()

/** Documents whose applied version others may change. */
function documents(applied: Text) {
  const checked: string[] = []
  return {
    kind: 'agents',
    id: 'sales',
    applied,
    checked,
    validate: async (text: string) => {
      checked.push(text)
      const findings = text.includes('bad') ? [{ level: 'error' as const, message: 'bad', line: 2 }] : []
      return { is_valid: findings.length === 0, findings, open_sessions: 3 }
    },
    current: async function () {
      return this.applied
    },
    draft: async (text: string) => ({ hash: `draft of ${text.length}`, findings: [] }),
    apply: async function (text: string, note: string, base: string) {
      if (base !== this.applied.hash) throw new ApiError(412, 'changed', 'anna has changed it')
      this.applied = { ...version(`${this.applied.hash}+`, text), note }
      return { agent_id: 'sales', hash: this.applied.hash, changed: true, warnings: [] }
    },
  }
}

describe('Editing', () => {
  const store = new Map<string, string>()
  beforeEach(() => {
    vi.useFakeTimers()
    store.clear()
    vi.stubGlobal('sessionStorage', { getItem: (key: string) => store.get(key) ?? null, setItem: (key: string, value: string) => store.set(key, value), removeItem: (key: string) => store.delete(key) })
  })
  const begin = (source: ReturnType<typeof documents>, text: string | null = null) => new Editing(source as unknown as Documents, source.applied, text)

  it('checks the text after a pause, and not each keystroke', async () => {
    const source = documents(version('1', 'a\n'))
    const editing = begin(source)
    await settle()
    for (const text of ['b', 'ba', 'bad\n']) editing.set(text)
    expect(editing.checking).toBe(true)
    await settle()
    expect(source.checked).toEqual(['a\n', 'bad\n'])
    expect([editing.checking, editing.errors, editing.marks]).toEqual([false, 1, [{ line: 2, column: undefined, level: 'error', message: 'bad' }]])
  })

  it('keeps the result of the last check, whatever the order of the responses', async () => {
    const source = documents(version('1', 'a\n'))
    const waits: (() => void)[] = []
    source.validate = (text: string) => new Promise((done) => waits.push(() => done({ is_valid: true, findings: [{ level: 'error' as const, message: text, line: 1 }], open_sessions: 0 })))
    const editing = begin(source)
    editing.set('later')
    await settle()
    waits[1]!()
    waits[0]!()
    await settle()
    expect(editing.findings[0]!.message).toBe('later')
  })

  it('brings a text back that was not applied, with the version from which it began', async () => {
    const source = documents(version('1', 'a\n'))
    begin(source).set('mine\n')
    source.applied = version('2', 'theirs\n')
    const again = begin(source)
    expect([again.text, again.restored, again.base.hash]).toEqual(['mine\n', true, '1'])
    again.reset(source.applied)
    expect([again.changed, begin(source).restored]).toEqual([false, false])
  })

  it('merges with what somebody else has applied, and then replaces that', async () => {
    const source = documents(version('1', 'a\nb\n'))
    const editing = begin(source)
    editing.set('a\nmine\n')
    source.applied = version('2', 'theirs\nb\n')
    expect(await editing.apply('')).toBeNull()
    expect(editing.theirs?.hash).toBe('2')
    expect(editing.error).toBeNull()
    editing.merged('theirs\nmine\n')
    expect(editing.base.hash).toBe('2')
    expect(await editing.apply('both')).toBe('2+')
    expect([source.applied.text, editing.changed]).toEqual(['theirs\nmine\n', false])
  })

  it('keeps the text when it is refused', async () => {
    const source = documents(version('1', 'a\n'))
    const editing = begin(source)
    editing.set('x')
    source.apply = async () => Promise.reject(new ApiError(403, 'forbidden', 'no'))
    expect(await editing.apply('')).toBeNull()
    expect([editing.text, (editing.error as ApiError).code, editing.busy]).toEqual(['x', 'forbidden', false])
  })
})

describe('marks', () => {
  it('are the findings with a line, with their hints', () => {
    expect(marksOf([{ level: 'warning', message: 'slow', hint: 'give `10s`', line: 3, column: 5 }, { level: 'error', message: 'no line' }])).toEqual([{ line: 3, column: 5, level: 'warning', message: 'slow; give `10s`' }])
  })
})
