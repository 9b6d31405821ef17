// A run as nested boxes: the structure of its workflow, filled with the run's record.

import type { Schema } from '$/api'
import { hasEnded, type EdgeShape, type NodeShape, type RunStatus, type StageShape, type StageState, type Structure, type Structures } from '$/runs'

export type Entry = Schema<'TimelineEntry'>
export type Layout = 'sequence' | 'branches' | 'routes' | 'graph'

export interface Box {
  path: string
  id: string
  /** Name for people, where the workflow has one. */
  name: string
  /** What the stage runs: a task agent, a function, a workflow, or the type of a node. */
  runnable: string
  /** Type of a workflow that runs in this box, or '' for a single stage. */
  type: string
  state: StageState
  /** Attempts; the last one counts. */
  entries: Entry[]
  condition: string | null
  layout: Layout
  children: Box[]
  /** Iterations of a loop. */
  pages: Page[]
  /** Most iterations that the loop may have; 0 if unknown. */
  most: number
  edges: EdgeShape[]
}

export interface Page {
  iteration: number
  path: string
  children: Box[]
}

/** States of stages from the events since the run was loaded, by path. */
export type LiveStates = ReadonlyMap<string, StageState>

export interface RunLike {
  status: RunStatus
  workflow_id: string
  timeline: readonly Entry[]
  graph?: readonly Schema<'NodeState'>[] | null
  questions?: readonly { node: string }[]
}

interface Node {
  entries: Entry[]
  children: Map<string, Node>
  pages: Map<number, Map<string, Node>>
}

const node = (): Node => ({ entries: [], children: new Map(), pages: new Map() })
const ITERATION = /^(.*)\[(\d+)\]$/

/** The recorded paths as a tree: `a[2]/b` is `b` in the second page of `a`. */
function tree(timeline: readonly Entry[]): Node {
  const root = node()
  for (const entry of timeline) {
    const parts = entry.path.split('/')
    let level = root.children
    for (const [index, part] of parts.entries()) {
      const last = index === parts.length - 1
      const match = last ? null : ITERATION.exec(part)
      const id = match ? match[1]! : part
      let here = level.get(id)
      if (!here) level.set(id, (here = node()))
      if (last) here.entries.push(entry)
      if (match) {
        const iteration = Number(match[2])
        let page = here.pages.get(iteration)
        if (!page) here.pages.set(iteration, (page = new Map()))
        level = page
      } else level = here.children
    }
  }
  return root
}

class Builder {
  private readonly ended: boolean
  private readonly graph: ReadonlyMap<string, StageState>
  private readonly asked: ReadonlySet<string>

  constructor(
    private readonly run: RunLike,
    private readonly structures: Structures,
    private readonly live: LiveStates,
  ) {
    this.ended = hasEnded(run.status)
    this.graph = new Map((run.graph ?? []).map((state) => [state.node_id, state.status as StageState]))
    this.asked = new Set((run.questions ?? []).map((question) => question.node))
  }

  root(): Box {
    const structure = this.structures.get(this.run.workflow_id)
    const recorded = tree(this.run.timeline)
    const box = this.box('', this.run.workflow_id, structure ?? '', recorded)
    box.state = this.run.status === 'cancelled' ? 'stopped' : (this.run.status as StageState)
    box.name = structure?.name ?? ''
    if (structure?.type === 'loop') {
      // The pages of an outermost loop are recorded under its id.
      const own = recorded.children.get(structure.id)
      this.fill(box, structure, own ?? node(), structure.id)
    }
    return box
  }

  private box(path: string, id: string, runnable: string | Structure, recorded: Node, condition: string | null = null): Box {
    const shape = typeof runnable === 'string' ? this.structures.get(runnable) : runnable
    const box: Box = {
      path,
      id,
      name: '',
      runnable: typeof runnable === 'string' ? runnable : runnable.id,
      type: shape?.type ?? '',
      state: this.state(path, recorded.entries),
      entries: recorded.entries,
      condition,
      layout: 'sequence',
      children: [],
      pages: [],
      most: 0,
      edges: [],
    }
    if (path !== '' || shape?.type !== 'loop') this.fill(box, shape, recorded, path)
    return box
  }

  /** Children or pages of a box. `base` is the path under which they are recorded. */
  private fill(box: Box, shape: Structure | undefined, recorded: Node, base: string): void {
    box.layout = layoutOf(shape, box.id)
    box.edges = shape?.edges ?? []
    box.most = shape?.max_iterations ?? 0
    if (shape?.type === 'loop' || recorded.pages.size > 0) {
      const iterations = [...recorded.pages.keys()].sort((a, b) => a - b)
      if (iterations.length === 0) iterations.push(1)
      box.pages = iterations.map((iteration) => {
        const path = `${base}[${iteration}]`
        return { iteration, path, children: this.children(shape, recorded.pages.get(iteration) ?? new Map(), path, box) }
      })
    }
    if (shape?.type !== 'loop') box.children = this.children(shape, recorded.children, base, box)
  }

  private children(shape: Structure | undefined, recorded: ReadonlyMap<string, Node>, base: string, parent: Box): Box[] {
    const under = (id: string) => (base === '' ? id : `${base}/${id}`)
    const rest = new Map(recorded)
    const take = (id: string) => {
      const found = rest.get(id) ?? node()
      rest.delete(id)
      return found
    }
    const stage = (entry: StageShape, condition = entry.condition ?? null) => this.box(under(entry.id), entry.id, entry.runnable, take(entry.id), condition)
    const boxes = [...(shape?.stages ?? []), ...(shape?.branches ?? [])].map((entry) => stage(entry))
    boxes.push(...(shape?.routes ?? []).map((route) => stage(route.stage, route.condition)))
    if (shape?.default) boxes.push(stage(shape.default, null))
    if (shape?.type === 'conditional') {
      const taken = boxes.some((box) => box.state !== 'pending' && box.state !== 'not_reached')
      for (const box of boxes) if (taken && box.entries.length === 0 && !this.live.has(box.path)) box.state = 'not_taken'
    }
    for (const entry of shape?.nodes ?? []) boxes.push(this.node(entry, under(entry.node_id), take(entry.node_id), base === ''))
    // Steps of a plan that a model has made, recoveries, and stages of workflows that are no longer stored.
    for (const [id, found] of rest) {
      if (parent.path === '' && base === '' && shape?.type === 'loop') continue
      const runnable = found.entries.at(-1)?.runnable ?? ''
      boxes.push(this.box(under(id), id, runnable, found))
    }
    return boxes
  }

  private node(shape: NodeShape, path: string, recorded: Node, outermost: boolean): Box {
    const body = shape.config?.body as Structure | undefined
    const box = this.box(path, shape.node_id, shape.type, recorded)
    box.name = shape.name ?? ''
    const known = outermost ? this.graph.get(shape.node_id) : undefined
    if (box.entries.length === 0 && known && !this.live.has(path) && known !== 'pending') box.state = known
    if (box.state === 'running' && this.asked.has(shape.node_id)) box.state = 'waiting'
    if (body) {
      box.type = 'loop'
      const inner: Structure = { ...body, id: shape.node_id, type: 'graph', levels: shape.levels }
      const pages = [...recorded.pages].sort(([a], [b]) => a - b)
      box.pages = pages.map(([iteration, found]) => ({ iteration, path: `${path}[${iteration}]`, children: this.children(inner, found, `${path}[${iteration}]`, box) }))
      box.edges = body.edges ?? []
      box.layout = 'graph'
    }
    return box
  }

  private state(path: string, entries: readonly Entry[]): StageState {
    const last = entries.at(-1)
    const live = this.live.get(path)
    if (live && !this.ended) return live
    if (!last) return this.ended ? 'not_reached' : 'pending'
    if (last.status !== 'running') return last.status
    if (this.ended) return 'stopped'
    return this.run.status === 'waiting' ? 'waiting' : 'running'
  }
}

function layoutOf(shape: Structure | undefined, id: string): Layout {
  if (shape?.type === 'parallel') return 'branches'
  if (shape?.type === 'conditional') return 'routes'
  if (shape?.type === 'graph') return 'graph'
  // The steps of a plan that a model has made run in parallel.
  return id === 'orchestrator' ? 'branches' : 'sequence'
}

export function boxesOf(run: RunLike, structures: Structures, live: LiveStates = new Map()): Box {
  return new Builder(run, structures, live).root()
}

/** The box with this path. */
export function find(box: Box, path: string): Box | null {
  if (box.path === path && path !== '') return box
  for (const child of [...box.children, ...box.pages.flatMap((page) => page.children)]) {
    if (path === child.path || path.startsWith(`${child.path}/`) || path.startsWith(`${child.path}[`)) {
      const found = find(child, path)
      if (found) return found
    }
  }
  return null
}
