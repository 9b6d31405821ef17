import { describe, expect, it } from 'vitest'
import { compare, counts, merge, split, type Part } from '$/document/lines'

const text = (...lines: string[]) => `${lines.join('\n')}\n`
/** The second text, made from the first one and the stretches. */
const applied = (a: string[], b: string[]) => compare(a, b).flatMap((part) => (part.same ? a.slice(...part.a) : b.slice(...part.b)))

describe('compare', () => {
  it('finds the shortest difference', () => {
    const [a, b] = [split(text('a', 'b', 'c', 'a', 'b', 'b', 'a')), split(text('c', 'b', 'a', 'b', 'a', 'c'))]
    const changed = compare(a, b).filter((part) => !part.same).reduce((sum, part) => sum + part.a[1] - part.a[0] + part.b[1] - part.b[0], 0)
    expect(changed).toBe(5)
    expect(applied(a, b)).toEqual(b)
  })

  it('makes the second text of the first one, whatever they are', () => {
    let seed = 7
    const random = (most: number) => (seed = (seed * 16807) % 2147483647) % most
    for (let round = 0; round < 300; round++) {
      const [a, b] = [0, 0].map(() => Array.from({ length: random(14) }, () => 'abcd'[random(4)]!)) as [string[], string[]]
      expect(applied(a, b)).toEqual(b)
      const same = compare(a, b).filter((part) => part.same)
      for (const part of same) expect(a.slice(...part.a)).toEqual(b.slice(...part.b))
    }
  })

  it('counts lines', () => {
    expect(counts(text('a', 'b', 'c'), text('a', 'x', 'y', 'c'))).toEqual({ added: 2, removed: 1 })
    expect(counts('same\n', 'same\n')).toEqual({ added: 0, removed: 0 })
    expect(counts('', text('a', 'b'))).toEqual({ added: 2, removed: 0 })
  })

  it('compares texts of thousands of lines', () => {
    const a = Array.from({ length: 5000 }, (_, index) => `line ${index}`)
    const b = a.map((line, index) => (index % 50 === 0 ? `${line}!` : line))
    const begin = performance.now()
    expect(applied(a, b)).toEqual(b)
    expect(performance.now() - begin).toBeLessThan(2000)
  })
})

describe('merge', () => {
  const result = (parts: Part[]) => parts.flatMap((part) => (part.kind === 'lines' ? part.lines : [`<${part.mine.join(' ')}|${part.theirs.join(' ')}>`])).join(' ')
  const base = text('a', 'b', 'c', 'd', 'e')

  it('takes the changes of both sides', () => {
    expect(result(merge(base, text('A', 'b', 'c', 'd', 'e'), text('a', 'b', 'c', 'd', 'e', 'f')))).toBe('A b c d e f')
    expect(result(merge(base, text('a', 'c', 'd', 'e'), text('a', 'b', 'c', 'D', 'e')))).toBe('a c D e')
  })

  it('leaves to the user what both have changed differently', () => {
    expect(result(merge(base, text('a', 'x', 'c', 'd', 'e'), text('a', 'y', 'c', 'd', 'e')))).toBe('a <x|y> c d e')
    expect(result(merge(base, text('a', 'x', 'c', 'd', 'e'), text('a', 'x', 'c', 'd', 'e')))).toBe('a x c d e')
    expect(result(merge(base, text('a', 'b', 'c', 'd', 'e', 'mine'), text('a', 'b', 'c', 'd', 'e', 'theirs')))).toBe('a b c d e <mine|theirs>')
  })

  it('keeps every line of one side where the other is the base', () => {
    let seed = 11
    const random = (most: number) => (seed = (seed * 16807) % 2147483647) % most
    for (let round = 0; round < 200; round++) {
      const lines = () => text('x', ...Array.from({ length: random(10) }, () => 'abc'[random(3)]!))
      const [one, other] = [lines(), lines()]
      for (const parts of [merge(one, other, one), merge(one, one, other)]) {
        expect(parts.every((part) => part.kind === 'lines')).toBe(true)
        expect(parts.flatMap((part) => (part.kind === 'lines' ? part.lines : []))).toEqual(split(other))
      }
    }
  })
})
