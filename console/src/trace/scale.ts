// A time axis that folds gaps in which nothing happens. A flow may wait for days between two steps of some milliseconds.

export interface Span {
  start: number
  end: number
}

export interface Gap extends Span {
  /** Place of the fold on the axis, 0 to 1. */
  from: number
  to: number
}

export interface Scale {
  start: number
  end: number
  gaps: Gap[]
  /** Place of a time on the axis, 0 to 1. */
  at(time: number): number
  /** Times of marks at round places. `apart`: least distance of two marks, as a share of the axis. */
  ticks(apart: number): Tick[]
}

export interface Tick {
  /** Place on the axis, 0 to 1. */
  at: number
  /** Time since the begin. */
  ms: number
}

/** Shortest gap that is folded, and the least share of the busy time that it must have. */
const LEAST_MS = 400
const LEAST_SHARE = 0.25
/** Width of a fold. */
const FOLD = 0.035

/** Times in which something happens, without overlaps. */
function busy(spans: readonly Span[]): Span[] {
  const sorted = [...spans].sort((a, b) => a.start - b.start)
  const merged: Span[] = []
  for (const span of sorted) {
    const last = merged[merged.length - 1]
    if (last && span.start <= last.end) last.end = Math.max(last.end, span.end)
    else merged.push({ ...span })
  }
  return merged
}

export function scale(spans: readonly Span[]): Scale {
  const parts = busy(spans.length > 0 ? spans : [{ start: 0, end: 1 }])
  const start = parts[0]!.start
  const end = Math.max(parts[parts.length - 1]!.end, start + 1)
  const work = parts.reduce((sum, part) => sum + (part.end - part.start), 0)
  const folded: Span[] = []
  for (let index = 1; index < parts.length; index++) {
    const gap = { start: parts[index - 1]!.end, end: parts[index]!.start }
    if (gap.end - gap.start >= LEAST_MS && gap.end - gap.start >= work * LEAST_SHARE) folded.push(gap)
  }
  const idle = folded.reduce((sum, gap) => sum + (gap.end - gap.start), 0)
  const width = Math.min(FOLD, 0.4 / Math.max(1, folded.length))
  const share = (1 - folded.length * width) / Math.max(1, end - start - idle)

  const at = (moment: number): number => {
    let place = 0
    let from = start
    for (const gap of folded) {
      if (moment <= gap.start) break
      place += (gap.start - from) * share
      if (moment < gap.end) return place + ((moment - gap.start) / (gap.end - gap.start)) * width
      place += width
      from = gap.end
    }
    return Math.min(1, Math.max(0, place + (moment - from) * share))
  }
  const gaps = folded.map((gap) => ({ ...gap, from: at(gap.start), to: at(gap.end) }))
  return { start, end, gaps, at, ticks: (apart) => ticks(start, end, gaps, at, apart) }
}

/** Marks at round times after the begin; none within a fold or close to another mark. */
function ticks(start: number, end: number, gaps: readonly Gap[], at: (time: number) => number, apart: number): Tick[] {
  const total = end - start
  const idle = gaps.reduce((sum, gap) => sum + (gap.end - gap.start), 0)
  const rough = Math.max(1, (total - idle) * Math.max(apart, 0.16))
  const power = 10 ** Math.floor(Math.log10(rough))
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((value) => value >= rough)!
  const marks: Tick[] = []
  const edges = [start, ...gaps.map((gap) => gap.end)]
  const ends = [...gaps.map((gap) => gap.start), end]
  edges.forEach((edge, index) => {
    for (let moment = Math.ceil((edge - start) / step) * step; start + moment <= ends[index]! && marks.length < 40; moment += step) {
      const place = at(start + moment)
      if (marks.every((mark) => Math.abs(mark.at - place) > apart) && place < 1 - apart * 0.6) marks.push({ at: place, ms: moment })
    }
  })
  return marks
}
