// The difference of two texts, line by line, and the merge of two changes of one text.

/** A stretch of lines that both texts have, or that one of them lacks. Indexes from 0, ends exclusive. */
export interface Stretch {
  same: boolean
  a: [from: number, to: number]
  b: [from: number, to: number]
}

export const split = (text: string): string[] => (text === '' ? [] : text.replace(/\n$/, '').split('\n'))

/** Texts that differ in more lines than this are compared as a whole: the search grows with the square of the difference. */
const MOST = 1500

/** The stretches of two lists of lines, by Myers' shortest edit. */
export function compare(a: readonly string[], b: readonly string[]): Stretch[] {
  let head = 0
  while (head < a.length && head < b.length && a[head] === b[head]) head++
  let tail = 0
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++
  const pairs = matches(a.slice(head, a.length - tail), b.slice(head, b.length - tail)).map(([x, y]): [number, number] => [x + head, y + head])
  const all: [number, number][] = [
    ...Array.from({ length: head }, (_, index): [number, number] => [index, index]),
    ...pairs,
    ...Array.from({ length: tail }, (_, index): [number, number] => [a.length - tail + index, b.length - tail + index]),
  ]
  return stretches(all, a.length, b.length)
}

/** Pairs of indexes of equal lines, in order. */
function matches(a: readonly string[], b: readonly string[]): [number, number][] {
  const most = Math.min(MOST, a.length + b.length)
  const trace: Map<number, number>[] = []
  let ends = new Map([[1, 0]])
  for (let edits = 0; edits <= most; edits++) {
    trace.push(ends)
    const next = new Map(ends)
    for (let k = -edits; k <= edits; k += 2) {
      const down = k === -edits || (k !== edits && (ends.get(k - 1) ?? -1) < (ends.get(k + 1) ?? -1))
      let x = down ? (ends.get(k + 1) ?? 0) : (ends.get(k - 1) ?? 0) + 1
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x++
      next.set(k, x)
      if (x >= a.length && x - k >= b.length) return walkBack(trace, a.length, b.length)
    }
    ends = next
  }
  return []
}

function walkBack(trace: readonly Map<number, number>[], lengthA: number, lengthB: number): [number, number][] {
  const pairs: [number, number][] = []
  let [x, y] = [lengthA, lengthB]
  for (let edits = trace.length - 1; edits >= 0; edits--) {
    const ends = trace[edits]!
    const k = x - y
    const down = k === -edits || (k !== edits && (ends.get(k - 1) ?? -1) < (ends.get(k + 1) ?? -1))
    const before = down ? k + 1 : k - 1
    const fromX = edits === 0 ? 0 : (ends.get(before) ?? 0)
    const fromY = edits === 0 ? 0 : fromX - before
    while (x > fromX && y > fromY) pairs.push([--x, --y])
    ;[x, y] = [fromX, fromY]
  }
  return pairs.reverse()
}

function stretches(pairs: readonly [number, number][], lengthA: number, lengthB: number): Stretch[] {
  const list: Stretch[] = []
  let [x, y] = [0, 0]
  const differ = (toX: number, toY: number) => {
    if (toX > x || toY > y) list.push({ same: false, a: [x, toX], b: [y, toY] })
  }
  for (const [atX, atY] of pairs) {
    differ(atX, atY)
    const last = list.at(-1)
    if (last?.same && last.a[1] === atX) [last.a[1], last.b[1]] = [atX + 1, atY + 1]
    else list.push({ same: true, a: [atX, atX + 1], b: [atY, atY + 1] })
    ;[x, y] = [atX + 1, atY + 1]
  }
  differ(lengthA, lengthB)
  return list
}

/** Counts of lines that `b` has more and that it lacks. */
export function counts(a: string, b: string): { added: number; removed: number } {
  let [added, removed] = [0, 0]
  for (const stretch of compare(split(a), split(b))) {
    if (stretch.same) continue
    removed += stretch.a[1] - stretch.a[0]
    added += stretch.b[1] - stretch.b[0]
  }
  return { added, removed }
}

/** A part of a merge: lines that are decided, or a conflict of which the user chooses. */
export type Part = { kind: 'lines'; lines: string[]; by: 'both' | 'mine' | 'theirs' } | { kind: 'conflict'; base: string[]; mine: string[]; theirs: string[] }

/** Merges two changes of `base`. Where only one side has changed lines, its lines count. */
export function merge(base: string, mine: string, theirs: string): Part[] {
  const [o, a, b] = [split(base), split(mine), split(theirs)]
  // Index in `mine` and `theirs` of each line of `base` that they have.
  const inMine = indexes(compare(o, a))
  const inTheirs = indexes(compare(o, b))
  const parts: Part[] = []
  let [x, y, z] = [0, 0, 0]
  while (x < o.length || y < a.length || z < b.length) {
    let run = 0
    while (x + run < o.length && inMine.get(x + run) === y + run && inTheirs.get(x + run) === z + run) run++
    if (run > 0) {
      parts.push({ kind: 'lines', lines: o.slice(x, x + run), by: 'both' })
      ;[x, y, z] = [x + run, y + run, z + run]
      continue
    }
    // Up to the next line that all three have.
    let next = x
    while (next < o.length && !(inMine.has(next) && inTheirs.has(next))) next++
    const [toY, toZ] = next < o.length ? [inMine.get(next)!, inTheirs.get(next)!] : [a.length, b.length]
    parts.push(decided(o.slice(x, next), a.slice(y, toY), b.slice(z, toZ)))
    ;[x, y, z] = [next, toY, toZ]
  }
  return parts
}

function indexes(list: readonly Stretch[]): Map<number, number> {
  const found = new Map<number, number>()
  for (const { same, a, b } of list) if (same) for (let index = 0; index < a[1] - a[0]; index++) found.set(a[0] + index, b[0] + index)
  return found
}

function decided(base: string[], mine: string[], theirs: string[]): Part {
  const equal = (one: string[], other: string[]) => one.length === other.length && one.every((line, index) => line === other[index])
  if (equal(mine, theirs)) return { kind: 'lines', lines: mine, by: 'both' }
  if (equal(base, theirs)) return { kind: 'lines', lines: mine, by: 'mine' }
  if (equal(base, mine)) return { kind: 'lines', lines: theirs, by: 'theirs' }
  return { kind: 'conflict', base, mine, theirs }
}
