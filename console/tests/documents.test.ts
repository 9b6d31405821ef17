import { describe, expect, it } from 'vitest'
import { ordered, yaml } from '$/document/yaml'
import { Metrics } from '$/views/system/metrics'

describe('YAML', () => {
  it('keeps values that look like others in quotes', () => {
    expect(yaml({ a: 'yes', b: '10s', c: 1, d: 'plain text', e: null, f: '', g: 'x: y', h: '- x' })).toBe('a: "yes"\nb: "10s"\nc: 1\nd: plain text\ne: null\nf: ""\ng: "x: y"\nh: "- x"\n')
  })

  it('nests lists and objects, and writes lines as blocks', () => {
    expect(yaml({ list: [{ id: 'a', of: ['b'] }, []], text: 'one\n\ntwo', end: 'x\n', none: {} })).toBe('list:\n  - id: a\n    of:\n      - b\n  - []\ntext: |-\n  one\n\n  two\nend: |\n  x\nnone: {}\n')
  })

  it('puts in front what names a document', () => {
    expect(Object.keys(ordered({ b: 1, name: 'n', id: 'i' }) as object)).toEqual(['id', 'name', 'b'])
  })
})

describe('metrics', () => {
  const metrics = new Metrics('# TYPE t counter\nt{outcome="a",x="q\\"r"} 3\nt{outcome="b"} 4\ng 7\nh_bucket{le="1"} 5\nh_bucket{le="2"} 10\nh_bucket{le="+Inf"} 10\n', 0)

  it('sum, group and interpolate', () => {
    expect(metrics.sum('t')).toBe(7)
    expect(metrics.sum('t', { outcome: 'a' })).toBe(3)
    expect(metrics.by('t', 'outcome')).toEqual([['b', 4], ['a', 3]])
    expect(metrics.gauge('g')).toBe(7)
    expect(metrics.gauge('missing')).toBeNull()
    expect(metrics.quantile('h', 0.5)).toBe(1)
    expect(metrics.quantile('h', 0.75)).toBe(1.5)
    expect(metrics.quantile('missing', 0.5)).toBeNull()
  })
})
