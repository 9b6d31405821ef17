import { describe, expect, it } from 'vitest'
import type { LiveEvent } from '$/live'
import type { Structure } from '$/runs'
import { boxesOf, find, type Entry, type RunLike } from '$/views/run/boxes'
import { layout, NODE, ranksOf } from '$/views/run/layout'
import { applyEvents, type LiveRun } from '$/views/run/live-run'

const entry = (path: string, status: Entry['status'] = 'completed', attempt = 1): Entry =>
  ({ path, status, attempt, runnable: 'agent', depth: 0, input: '', model_calls: 0, ms: 1 }) as Entry
const run = (timeline: Entry[], more: Partial<RunLike> = {}): RunLike => ({ status: 'running', workflow_id: 'w', timeline, ...more })
const shapes = (...list: Structure[]) => new Map(list.map((shape) => [shape.id, shape]))
const stage = (id: string, runnable: string | Structure = 'agent', kind = 'task agent') => ({ id, runnable, runnable_kind: kind })

describe('boxes of a run', () => {
  const loop: Structure = { id: 'inner', type: 'loop', max_iterations: 3, stages: [stage('draft'), stage('check')] }
  const pipeline: Structure = { id: 'w', type: 'pipeline', stages: [stage('plan'), stage('work', loop), stage('sum')] }

  it('fills the structure with records, and leaves the rest pending', () => {
    const root = boxesOf(run([entry('plan'), entry('work', 'running'), entry('work[1]/draft'), entry('work[1]/check'), entry('work[2]/draft', 'running')]), shapes(pipeline))
    expect(root.children.map((box) => [box.id, box.state])).toEqual([['plan', 'completed'], ['work', 'running'], ['sum', 'pending']])
    const work = root.children[1]!
    expect(work.most).toBe(3)
    expect(work.pages.map((page) => page.children.map((box) => box.state))).toEqual([['completed', 'completed'], ['running', 'pending']])
    expect(find(root, 'work[2]/draft')?.state).toBe('running')
    expect(find(root, 'work[7]/draft')).toBeNull()
  })

  it('shows pages of an outermost loop', () => {
    const root = boxesOf(run([entry('w[1]/draft'), entry('w[2]/draft', 'failed')], { status: 'failed' }), shapes({ ...loop, id: 'w' }))
    expect(root.children).toEqual([])
    expect(root.pages.map((page) => page.children.map((box) => box.state))).toEqual([['completed', 'not_reached'], ['failed', 'not_reached']])
  })

  it('opens workflows that a stage names, and knows records without a structure', () => {
    const outer: Structure = { id: 'w', type: 'pipeline', stages: [stage('first', 'route', 'workflow')] }
    const route: Structure = { id: 'route', type: 'conditional', routes: [{ condition: 'a', stage: stage('left') }, { condition: 'b', stage: stage('right') }] }
    const timeline = [entry('first'), entry('first/right'), entry('late/x[2]/y')]
    const root = boxesOf(run(timeline, { status: 'completed' }), shapes(outer, route))
    expect(root.children[0]!.layout).toBe('routes')
    expect(root.children[0]!.children.map((box) => box.state)).toEqual(['not_taken', 'completed'])
    expect(find(root, 'late/x[2]/y')?.state).toBe('completed')
    expect(boxesOf(run(timeline), new Map()).children.map((box) => box.id)).toEqual(['first', 'late'])
  })

  it('has the last attempt, and the states that events report', () => {
    const root = boxesOf(run([entry('plan', 'failed'), entry('plan', 'running', 2)]), shapes(pipeline), new Map([['sum', 'running']]))
    expect(root.children[0]!.state).toBe('running')
    expect(root.children[0]!.entries.length).toBe(2)
    expect(root.children[2]!.state).toBe('running')
  })

  it('marks what an ended run has not finished, and a node that asks', () => {
    expect(boxesOf(run([entry('plan', 'running')], { status: 'cancelled' }), shapes(pipeline)).children[0]!.state).toBe('stopped')
    const graph: Structure = { id: 'w', type: 'graph', nodes: [{ node_id: 'a', type: 'LLM' }, { node_id: 'ask', type: 'ASK' }], edges: [] }
    const waiting = run([entry('ask', 'running')], { status: 'waiting', questions: [{ node: 'ask' }], graph: [{ node_id: 'a', type: 'LLM', status: 'skipped', attempts: 0 }] })
    expect(boxesOf(waiting, shapes(graph)).children.map((box) => box.state)).toEqual(['skipped', 'waiting'])
  })

  it('opens 2,000 stages fast', () => {
    const timeline = Array.from({ length: 1000 }, (_, index) => [entry(`work[${index + 1}]/draft`), entry(`work[${index + 1}]/check`)]).flat()
    // The best of a few: other programs only make it slower.
    const times = Array.from({ length: 5 }, () => {
      const begin = performance.now()
      expect(boxesOf(run(timeline), shapes(pipeline)).children[1]!.pages.length).toBe(1000)
      return performance.now() - begin
    })
    expect(Math.min(...times)).toBeLessThan(200)
  })
})

describe('layout of a graph', () => {
  const edges = [{ source: 'a', target: 'b' }, { source: 'b', target: 'c' }, { source: 'a', target: 'c' }, { source: 'x', target: 'c' }]

  it('puts a node below all that lead to it', () => {
    expect(ranksOf(['a', 'b', 'c', 'x'], edges)).toEqual([['a', 'x'], ['b'], ['c']])
  })

  it('places nodes without overlap', () => {
    const { nodes, lines, width } = layout(['a', 'b', 'c', 'x'], edges)
    expect(nodes.length).toBe(4)
    expect(lines.length).toBe(4)
    const [a, x] = [nodes.find((node) => node.id === 'a')!, nodes.find((node) => node.id === 'x')!]
    expect(Math.abs(a.x - x.x)).toBeGreaterThanOrEqual(NODE.width + NODE.gapX)
    expect(Math.max(...nodes.map((node) => node.x + NODE.width))).toBeLessThanOrEqual(width)
  })

  it('stands a cycle and edges to nowhere', () => {
    expect(layout(['a', 'b'], [{ source: 'a', target: 'b' }, { source: 'b', target: 'a' }, { source: 'a', target: 'gone' }]).nodes.length).toBe(2)
  })
})

describe('events of a run', () => {
  const event = (more: Record<string, unknown>): LiveEvent => ({ seq: 1, type: 'run', session_id: 'r', channel: 'c', event: { run_id: 'r', root_run_id: 'r', path: 'a', ...more } })

  it('change states and let texts grow; other runs change nothing', () => {
    const live: LiveRun = { states: new Map(), texts: new Map() }
    expect(applyEvents(live, [event({ type: 'stage_started' })], 'r')).toBe(true)
    const delta = (content: string, stream_id: string) => event({ type: 'step_delta', delta: { content, stream_id } })
    expect(applyEvents(live, [delta('Hel', 's'), delta('lo', 's')], 'r')).toBe(false)
    expect(live.texts.get('a')?.text).toBe('Hello')
    applyEvents(live, [delta('Again', 't')], 'r')
    expect(live.texts.get('a')?.text).toBe('Again')
    expect(applyEvents(live, [event({ type: 'stage_completed', root_run_id: 'other' })], 'r')).toBe(false)
    applyEvents(live, [event({ type: 'stage_completed' })], 'r')
    expect(live.states.get('a')).toBe('completed')
    expect(live.texts.size).toBe(0)
  })
})
