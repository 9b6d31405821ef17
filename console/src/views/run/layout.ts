// Places of the nodes of a graph: ranks from top to bottom, as the engine computes them, and edges as curves between them.

import type { EdgeShape } from '$/runs'

export const NODE = { width: 184, height: 60, gapX: 24, gapY: 44 }

export interface Place {
  id: string
  x: number
  y: number
}

export interface Line {
  source: string
  target: string
  label: string
  path: string
  labelX: number
  labelY: number
}

export interface GraphLayout {
  width: number
  height: number
  nodes: Place[]
  lines: Line[]
}

/** Ranks from the edges, for a graph whose structure has none: a node is below all that lead to it. */
export function ranksOf(ids: readonly string[], edges: readonly EdgeShape[]): string[][] {
  const rank = new Map<string, number>(ids.map((id) => [id, 0]))
  for (let round = 0; round < ids.length; round++) {
    let moved = false
    for (const { source, target } of edges) {
      const below = (rank.get(source) ?? -1) + 1
      if (rank.has(source) && rank.has(target) && below > rank.get(target)! && below < ids.length) {
        rank.set(target, below)
        moved = true
      }
    }
    if (!moved) break
  }
  const ranks: string[][] = []
  for (const id of ids) (ranks[rank.get(id)!] ??= []).push(id)
  return ranks.filter((row) => row.length > 0)
}

interface Segment {
  source: string
  target: string
}

/** An edge over several ranks goes through a place of its own in each of them, so that it passes between nodes. */
export function layout(ids: readonly string[], edges: readonly EdgeShape[]): GraphLayout {
  const rows = ranksOf(ids, edges).map((row) => [...row])
  const rankOf = new Map(rows.flatMap((row, rank) => row.map((id) => [id, rank] as const)))
  const known = edges.filter((edge) => rankOf.has(edge.source) && rankOf.has(edge.target))
  const segments: Segment[] = []
  const chains = known.map((edge, index) => {
    const chain = [edge.source]
    for (let rank = rankOf.get(edge.source)! + 1; rank < rankOf.get(edge.target)!; rank++) {
      const id = `\u0000${index}/${rank}`
      rows[rank]!.push(id)
      chain.push(id)
    }
    chain.push(edge.target)
    for (let at = 1; at < chain.length; at++) segments.push({ source: chain[at - 1]!, target: chain[at]! })
    return chain
  })
  order(rows, segments)

  const real = (id: string) => !id.startsWith('\u0000')
  const wide = (id: string) => (real(id) ? NODE.width : NODE.gapX)
  const widths = rows.map((row) => row.reduce((sum, id) => sum + wide(id), 0) + NODE.gapX * (row.length - 1))
  const width = Math.max(NODE.width, ...widths)
  const places = new Map<string, Place>()
  rows.forEach((row, rank) => {
    let x = (width - widths[rank]!) / 2
    for (const id of row) {
      places.set(id, { id, x, y: rank * (NODE.height + NODE.gapY) })
      x += wide(id) + NODE.gapX
    }
  })
  const height = rows.length * NODE.height + Math.max(0, rows.length - 1) * NODE.gapY
  const lines = known.map((edge, index) => line(edge, chains[index]!, places, wide))
  return { width, height, nodes: [...places.values()].filter(({ id }) => real(id)), lines }
}

/** Sorts each rank by the mean place of its neighbours, down and up a few times: fewer crossings. */
function order(rows: string[][], segments: readonly Segment[]): void {
  const above = new Map<string, string[]>()
  const below = new Map<string, string[]>()
  for (const { source, target } of segments) {
    above.set(target, [...(above.get(target) ?? []), source])
    below.set(source, [...(below.get(source) ?? []), target])
  }
  const sort = (row: string[], other: readonly string[], neighbours: Map<string, string[]>) => {
    const index = new Map(other.map((id, place) => [id, place / Math.max(1, other.length - 1)]))
    const own = new Map(row.map((id, place) => [id, place / Math.max(1, row.length - 1)]))
    const mean = (id: string) => {
      const found = (neighbours.get(id) ?? []).map((near) => index.get(near)).filter((value) => value !== undefined)
      return found.length > 0 ? found.reduce((sum, value) => sum + value, 0) / found.length : own.get(id)!
    }
    const weight = new Map(row.map((id) => [id, mean(id)]))
    row.sort((a, b) => weight.get(a)! - weight.get(b)!)
  }
  for (let round = 0; round < 4; round++) {
    for (let rank = 1; rank < rows.length; rank++) sort(rows[rank]!, rows[rank - 1]!, above)
    for (let rank = rows.length - 2; rank >= 0; rank--) sort(rows[rank]!, rows[rank + 1]!, below)
  }
}

function line(edge: EdgeShape, chain: readonly string[], places: ReadonlyMap<string, Place>, wide: (id: string) => number): Line {
  const middle = (id: string) => places.get(id)!.x + wide(id) / 2
  let path = ''
  let [labelX, labelY] = [0, 0]
  for (let at = 1; at < chain.length; at++) {
    const [from, to] = [places.get(chain[at - 1]!)!, places.get(chain[at]!)!]
    const [x1, y1] = [middle(from.id), from.y + NODE.height]
    const [x2, y2] = [middle(to.id), to.y - (at === chain.length - 1 ? 6 : 0)]
    const bend = (y2 - y1) / 2
    path += `${at === 1 ? 'M' : 'L'}${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`
    if (at === 1) [labelX, labelY] = [(x1 + x2) / 2, (y1 + y2) / 2]
  }
  return { source: edge.source, target: edge.target, label: edge.condition ?? '', path, labelX, labelY }
}
