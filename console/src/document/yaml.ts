// A value as YAML, for reading and copying. Every YAML parser reads the value back.

/** Texts that YAML would read as something else stand in quotes. */
const PLAIN = /^[\p{L}_./][\p{L}\p{N}_./ ()+-]*$/u
const WORDS = /^(?:true|false|null|yes|no|on|off|y|n|~|\.inf|\.nan)$/i
const WIDTH = 120

function scalar(value: unknown): string {
  if (typeof value !== 'string') return JSON.stringify(value) ?? 'null'
  if (PLAIN.test(value) && !value.endsWith(' ') && !WORDS.test(value) && !/^[.\d]*$/.test(value) && value.length < WIDTH * 4) return value
  return JSON.stringify(value)
}

/** A text of several lines as a block, unless a line could not be kept as it is. */
function block(text: string, indent: string): string | null {
  if (!text.includes('\n') || /^\s/.test(text) || /[^\P{C}\n\t]/u.test(text) || /[ \t]$/m.test(text)) return null
  const end = /\n*$/.exec(text)![0].length
  const mark = end === 0 ? '|-' : end === 1 ? '|' : '|+'
  const body = end > 0 ? text.slice(0, -1) : text
  return `${mark}\n${body.split('\n').map((line) => (line === '' ? '' : indent + line)).join('\n')}`
}

function lines(value: unknown, indent: string): string {
  if (typeof value === 'string') return block(value, indent) ?? scalar(value)
  if (value === null || typeof value !== 'object') return scalar(value)
  if (Array.isArray(value)) {
    if (value.length === 0) return '[]'
    return `\n${value.map((item) => `${indent}- ${inItem(item, indent)}`).join('\n')}`
  }
  const entries = Object.entries(value)
  if (entries.length === 0) return '{}'
  return `\n${entries.map(([key, item]) => `${indent}${scalar(key)}:${after(item, indent)}`).join('\n')}`
}

function after(value: unknown, indent: string): string {
  const text = lines(value, `${indent}  `)
  return text.startsWith('\n') ? text : ` ${text}`
}

/** The first field of an object stands behind the dash. */
function inItem(value: unknown, indent: string): string {
  const text = lines(value, `${indent}  `)
  return text.startsWith('\n') ? text.slice(indent.length + 3) : text
}

export function yaml(value: unknown): string {
  return `${lines(value, '').replace(/^\n/, '')}\n`
}

const FIRST = ['id', 'type', 'name', 'description']

/** The document with the fields that name it in front. */
export function ordered(document: unknown): unknown {
  if (document === null || typeof document !== 'object' || Array.isArray(document)) return document
  const entries = Object.entries(document)
  const front = FIRST.flatMap((key) => entries.filter(([name]) => name === key))
  return Object.fromEntries([...front, ...entries.filter(([name]) => !FIRST.includes(name))])
}
