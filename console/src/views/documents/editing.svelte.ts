// The text that the user edits: its findings while it is typed, and its ways into use.

import { ApiError, isAbort } from '$/api'
import { marksOf, type Documents, type Finding, type Text, type Validation } from '$/document/documents'

/** Pause after a keystroke before the text is checked. */
const PAUSE = 350

/** Where a text that is not applied yet survives a reload of the page. */
const kept = (documents: Documents) => `turnwheel.edit.${documents.kind}/${documents.id}`

export class Editing {
  text = $state('')
  validation = $state.raw<Validation | null>(null)
  checking = $state(false)
  error = $state.raw<unknown>(null)
  busy = $state(false)
  /** The text comes from an earlier visit of the page. */
  restored = $state(false)
  /** Applied by a colleague meanwhile: the changes have to be merged. */
  theirs = $state.raw<Text | null>(null)
  /** Text and hash from which the change began. */
  base: Text = $state.raw({ hash: '', text: '', at: null, by: null, note: null })

  private timer: ReturnType<typeof setTimeout> | null = null
  private abort: AbortController | null = null

  constructor(
    readonly documents: Documents,
    base: Text,
    text: string | null,
  ) {
    this.base = base
    this.text = text ?? base.text
    if (text === null) this.restore()
    void this.check()
  }

  get changed(): boolean {
    return this.text !== this.base.text
  }

  get findings(): Finding[] {
    return this.validation?.findings ?? []
  }

  get errors(): number {
    return this.findings.filter(({ level }) => level === 'error').length
  }

  get marks() {
    return marksOf(this.findings)
  }

  set(text: string): void {
    this.text = text
    this.error = null
    this.keep()
    this.checking = true
    if (this.timer) clearTimeout(this.timer)
    this.timer = setTimeout(() => void this.check(), PAUSE)
  }

  reset(base: Text = this.base): void {
    this.base = base
    this.restored = false
    this.set(base.text)
  }

  stop(): void {
    if (this.timer) clearTimeout(this.timer)
    this.abort?.abort()
  }

  async check(): Promise<void> {
    this.abort?.abort()
    const abort = (this.abort = new AbortController())
    this.checking = true
    try {
      const validation = await this.documents.validate(this.text, abort.signal)
      if (this.abort === abort) this.validation = validation
    } catch (error) {
      if (!isAbort(error)) this.error = error
    } finally {
      if (this.abort === abort) this.checking = false
    }
  }

  /** Stores the text as a draft. Returns its hash; null if the gateway refused it. */
  draft(note: string): Promise<string | null> {
    return this.attempt(async () => (await this.documents.draft(this.text, note)).hash)
  }

  /** Applies the text. Returns the hash; null if it was refused, or if a colleague has changed the document. */
  apply(note: string): Promise<string | null> {
    return this.attempt(async () => {
      try {
        const { hash } = await this.documents.apply(this.text, note, this.base.hash)
        this.base = { ...this.base, hash, text: this.text }
        this.keep()
        return hash
      } catch (error) {
        if (!(error instanceof ApiError && error.status === 412)) throw error
        this.theirs = await this.documents.current()
        return null
      }
    })
  }

  /** The merged text is based on the other change. */
  merged(text: string): void {
    if (this.theirs) this.base = this.theirs
    this.theirs = null
    this.set(text)
  }

  private async attempt(action: () => Promise<string | null>): Promise<string | null> {
    this.busy = true
    this.error = null
    try {
      return await action()
    } catch (error) {
      if (!isAbort(error)) this.error = error
      return null
    } finally {
      this.busy = false
    }
  }

  private keep(): void {
    if (this.changed) sessionStorage.setItem(kept(this.documents), JSON.stringify({ hash: this.base.hash, base: this.base.text, text: this.text }))
    else sessionStorage.removeItem(kept(this.documents))
  }

  private restore(): void {
    try {
      const stored = JSON.parse(sessionStorage.getItem(kept(this.documents)) ?? 'null') as { hash: string; base: string; text: string } | null
      if (!stored || stored.text === this.base.text) return
      // Based on the version from which it began, so that applying finds later changes.
      this.base = { ...this.base, hash: stored.hash, text: stored.base }
      this.text = stored.text
      this.restored = true
    } catch {
      // Written by something else: the document as it is in use is shown.
    }
  }
}
