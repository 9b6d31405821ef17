// Findings of the API for a document, and the lines of its JSON text that they are about.

import type { Schema } from '$/api'

export interface Found {
  path: string
  problem: string
  line: number | null
}

/** `message` of `invalid_agent` and `invalid_workflow` has a finding in each line: `nodes[5].config.body: is missing; …`. */
export function findingsOf(message: string, text: string): Found[] {
  return message
    .split('\n')
    .filter((line) => line.trim() !== '')
    .map((line) => {
      const match = /^`?([\w.[\]-]+)`?: (.*)$/.exec(line)
      return match ? { path: match[1]!, problem: match[2]!, line: lineOf(text, match[1]!) } : { path: '', problem: line, line: null }
    })
}

export function warningsOf(warnings: readonly Schema<'Finding'>[], text: string): Found[] {
  return warnings.map(({ path, problem, hint }) => ({ path, problem: hint ? `${problem}; ${hint}` : problem, line: lineOf(text, path) }))
}

/** Line, from 1, where a path such as `nodes[5].config` begins in a JSON text; the nearest parent's, if it is missing there. */
export function lineOf(text: string, path: string): number | null {
  const wanted = path.split(/[.[\]]+/).filter(Boolean)
  let best: { depth: number; line: number } | null = null
  walk(text, (here, line) => {
    const depth = here.length
    if (depth > 0 && depth <= wanted.length && here.every((part, index) => part === wanted[index]) && depth > (best?.depth ?? 0)) best = { depth, line }
  })
  return (best as { line: number } | null)?.line ?? null
}

/** Calls back with the path and line of each value of a JSON text. */
function walk(text: string, visit: (path: string[], line: number) => void): void {
  const path: string[] = []
  const counters: (number | null)[] = []
  let line = 1
  let key: string | null = null
  const begin = () => {
    const index = counters.at(-1)
    path.push(index === null || index === undefined ? (key ?? '') : String(index))
    if (counters.length > 0) visit(path, line)
  }
  for (let at = 0; at < text.length; at++) {
    const char = text[at]!
    if (char === '\n') line++
    else if (char === '{' || char === '[') {
      begin()
      if (counters.length === 0) path.pop()
      counters.push(char === '[' ? 0 : null)
      key = null
    } else if (char === '}' || char === ']') {
      counters.pop()
      if (counters.length > 0) path.pop()
    } else if (char === ',') {
      const last = counters.length - 1
      if (typeof counters[last] === 'number') counters[last]++
      key = null
    } else if (char === '"') {
      let end = at + 1
      while (end < text.length && text[end] !== '"') end += text[end] === '\\' ? 2 : 1
      if (counters.at(-1) === null && key === null) {
        try {
          key = JSON.parse(text.slice(at, end + 1)) as string
        } catch {
          key = ''
        }
      } else {
        begin()
        path.pop()
      }
      at = end
    } else if (/[-\dtfn]/.test(char)) {
      begin()
      path.pop()
      while (at + 1 < text.length && /[\w.+-]/.test(text[at + 1]!)) at++
    }
  }
}

/** Line of the place that `JSON.parse` complains about. */
export function syntaxLine(error: unknown, text: string): { line: number; problem: string } {
  const message = error instanceof Error ? error.message : String(error)
  const line = /line (\d+)/.exec(message)?.[1]
  const position = /position (\d+)/.exec(message)?.[1]
  const at = position === undefined ? text.length : Number(position)
  return { line: line ? Number(line) : text.slice(0, at).split('\n').length, problem: message.replace(/ in JSON.*$/, '') }
}
