import { describe, expect, it } from 'vitest'
import { ordered, yaml } from '$/document/yaml'
import { findingsOf, lineOf, syntaxLine } from '$/views/documents/findings'
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

describe('findings', () => {
  const text = JSON.stringify({ id: 'w', nodes: [{ node_id: 'a', type: 'LLM' }, { node_id: 'b', config: { code: '"{[' } }] }, null, 2)

  it('have the line of their path, or of the nearest parent', () => {
    const lines = text.split('\n')
    expect(lines[lineOf(text, 'nodes[1].config.code')! - 1]).toContain('"code"')
    expect(lines[lineOf(text, 'nodes[1].config.missing')! - 1]).toContain('"config"')
    expect(lineOf(text, 'other')).toBeNull()
    expect(findingsOf('nodes[0].type: is `X`; give another\nplain words', text)).toEqual([{ path: 'nodes[0].type', problem: 'is `X`; give another', line: 6 }, { path: '', problem: 'plain words', line: null }])
  })

  it('name the line of a fault of syntax', () => {
    const broken = '{\n  "a": 1,\n  "b": }\n'
    let error: unknown
    try {
      JSON.parse(broken)
    } catch (failure) {
      error = failure
    }
    expect(syntaxLine(error, broken).line).toBeGreaterThanOrEqual(3)
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
