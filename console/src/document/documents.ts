// Documents of both kinds at the API: an agent or a workflow as YAML text, its versions and its drafts.

import { request, type Schema } from '$/api'
import type { Mark } from '$/editor'
import { ordered, yaml } from './yaml'

export type Kind = 'agents' | 'workflows'

export type Finding = Schema<'DocumentFinding'>
export type Validation = Schema<'CheckedDocument'>
export type Version = Schema<'VersionSummary'>

/** An agent or a workflow, or a version of one. */
export interface Stored {
  hash: string
  config?: unknown
  definition?: unknown
  source?: string | null
  updated_at?: string | null
  by?: string | null
  note?: string | null
}

/** A document as the editor has it. */
export interface Text {
  hash: string
  text: string
  at: string | null
  by: string | null
  note: string | null
}

const YAML = 'application/yaml'

/** In place of a document that does not exist yet. */
export const NONE: Text = { hash: '', text: '', at: null, by: null, note: null }

export function textOf(stored: Stored): Text {
  const { hash, source, updated_at, by, note } = stored
  return { hash, text: source ?? yaml(ordered(stored.config ?? stored.definition)), at: updated_at ?? null, by: by ?? null, note: note ?? null }
}

export class Documents {
  constructor(
    readonly kind: Kind,
    readonly id: string,
  ) {}

  private get path(): string {
    return `/api/v1/${this.kind}/{id}`
  }

  async current(signal?: AbortSignal): Promise<Text> {
    return textOf(await request<Stored>('GET', this.path, { path: { id: this.id }, signal }))
  }

  async version(hash: string, signal?: AbortSignal): Promise<Text> {
    return textOf(await request<Stored>('GET', `${this.path}/versions/{hash}`, { path: { id: this.id, hash }, signal }))
  }

  versions(after: string | undefined, signal: AbortSignal): Promise<Schema<'VersionList'>> {
    return request('GET', `${this.path}/versions`, { path: { id: this.id }, query: { after, limit: 50 }, signal })
  }

  validate(text: string, signal?: AbortSignal): Promise<Validation> {
    return request('POST', `/api/v1/${this.kind}/validate`, { text: { type: YAML, content: text }, signal })
  }

  /** Stores a version that nothing uses until it is applied. */
  draft(text: string, note: string): Promise<Schema<'StoredDraft'>> {
    return request('POST', `${this.path}/versions`, { path: { id: this.id }, query: { note }, text: { type: YAML, content: text } })
  }

  /** Applies a text if `base` is in use still; otherwise it fails with status 412. An empty `base`: if no document has the id. */
  apply(text: string, note: string, base: string): Promise<Schema<'Applied'>> {
    const headers: Record<string, string> = base === '' ? { 'if-none-match': '*' } : { 'if-match': `"${base}"` }
    return request('PUT', this.path, { path: { id: this.id }, query: { note }, text: { type: YAML, content: text }, headers })
  }

  /** Applies a stored version if `base` is in use still. */
  applyVersion(hash: string, note: string, base: string): Promise<Schema<'Applied'>> {
    const body = note === '' ? {} : { note }
    return request('POST', `${this.path}/versions/{hash}/apply`, { path: { id: this.id, hash }, body, headers: { 'if-match': `"${base}"` } })
  }
}

export const words = (finding: Finding): string => (finding.hint ? `${finding.message}; ${finding.hint}` : finding.message)

/** Findings as marks of the editor. Those without a line are only in the list. */
export const marksOf = (findings: readonly Finding[]): Mark[] =>
  findings.flatMap((finding) => (finding.line ? [{ line: finding.line, column: finding.column, level: finding.level, message: words(finding) }] : []))
