// A dialogue with the authoring agent: its lines, its stage, and the turn under way.

import { ApiError, frames, get, isAbort, open, type Schema } from '$/api'
import { live, type Following } from '$/live'

export type Details = Schema<'DialogueDetails'>
export type Stage = Schema<'Stage'>

export interface Line {
  key: string
  role: 'user' | 'assistant' | 'note'
  text: string
  at: number
  /** Kind of a note: the text names the attempt. */
  note?: 'generating' | 'draft' | 'passed' | 'failed' | 'published' | 'ready'
  values?: Record<string, number>
}

export interface AuthoringEvent {
  type: string
  turn_id: string
  seq: number
  timestamp: number
  is_final: boolean
  delta?: string
  stream_id?: string
  supersedes?: string
  content?: Record<string, unknown>
  data?: Record<string, unknown>
}

interface Growing {
  stream: string
  text: string
}

const PAUSES = [300, 1000, 2000, 4000, 8000]

function newId(): string {
  // `crypto.randomUUID` is missing on pages without https.
  const bytes = crypto.getRandomValues(new Uint8Array(16))
  return [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('')
}

export class Dialogue {
  details = $state.raw<Details | null>(null)
  stage = $state<Stage>('clarification')
  lines = $state.raw<Line[]>([])
  growing = $state.raw<Growing | null>(null)
  /** A turn is under way. */
  busy = $state(false)
  problem = $state.raw<{ message: string; code: string; recoverable: boolean } | null>(null)
  error = $state.raw<unknown>(null)
  loading = $state(true)

  private notes: Line[] = []
  private readonly abort = new AbortController()
  private following: Following | null = null
  private seen = new Set<string>()
  /** Turns that have ended: the stream of all events repeats the last events of this tab's own turn. */
  private ended = new Set<string>()
  private own = false

  constructor(readonly session_id: string) {}

  async start(): Promise<void> {
    this.following = live.follow({
      filter: { session_id: this.session_id, types: ['authoring'] },
      onEvents: (events) => {
        // The turn of another tab, or of the terminal. This tab's own turn comes by its own stream.
        if (this.own) return
        for (const { event } of events) this.take(event as unknown as AuthoringEvent)
      },
      onGap: () => {
        // The end of another tab's turn may be among the missing events.
        if (this.own) void this.load()
        else this.end()
      },
    })
    await this.following.ready
    await this.load()
  }

  stop(): void {
    this.abort.abort()
    this.following?.stop()
  }

  async load(): Promise<void> {
    const options = { path: { session_id: this.session_id }, signal: this.abort.signal }
    try {
      const [details, history] = await Promise.all([get('/api/v1/session/{session_id}', options), get('/api/v1/chat/history/{session_id}', options)])
      this.details = details
      if (!this.busy) this.stage = details.stage
      const lines = history.conversations.map((entry, index): Line => ({ key: `h${index}`, role: entry.role === 'user' ? 'user' : 'assistant', text: entry.text, at: entry.timestamp }))
      this.lines = [...lines, ...this.notes].sort((a, b) => a.at - b.at)
      this.error = null
    } catch (error) {
      if (!isAbort(error)) this.error = error
    } finally {
      this.loading = false
    }
  }

  /** Sends a message and follows its turn. Returns false if the gateway refused it. */
  async send(text: string): Promise<boolean> {
    const message_id = newId()
    this.own = true
    this.busy = true
    this.problem = null
    this.error = null
    this.lines = [...this.lines, { key: message_id, role: 'user', text, at: Date.now() }]
    try {
      await this.follow(text, message_id)
      return true
    } catch (error) {
      if (isAbort(error)) return true
      this.error = error
      this.lines = this.lines.filter((line) => line.key !== message_id)
      return false
    } finally {
      this.own = false
      this.end()
    }
  }

  /** The same `message_id` is the same turn: after a broken connection the events after the last one follow. */
  private async follow(user_message: string, message_id: string): Promise<void> {
    let last = ''
    for (let attempt = 0; ; attempt++) {
      try {
        const headers = last === '' ? undefined : { 'last-event-id': last }
        const body = { session_id: this.session_id, user_message, message_id }
        const response = await open('POST', '/api/v1/chat/stream', { body, accept: 'text/event-stream', headers, signal: this.abort.signal })
        if (response.status === 204) return
        for await (const frame of frames(response)) {
          if (frame.id) last = frame.id
          const event = JSON.parse(frame.data) as AuthoringEvent
          this.take(event)
          attempt = 0
          if (event.is_final) return
        }
      } catch (error) {
        const again = error instanceof ApiError ? error.temporary : !isAbort(error)
        if (!again || attempt >= PAUSES.length) throw error
      }
      if (attempt >= PAUSES.length) throw new ApiError(0, 'unreachable', '')
      await new Promise((done) => setTimeout(done, PAUSES[attempt]))
    }
  }

  private take(event: AuthoringEvent): void {
    if (this.ended.has(event.turn_id)) return
    const key = `${event.turn_id}/${event.seq}`
    if (event.delta === undefined || event.content) {
      if (this.seen.has(key)) return
      this.seen.add(key)
    }
    if (event.is_final) this.ended.add(event.turn_id)
    else this.busy = true
    if (event.type === 'status' && event.content) this.stage = event.content.new_stage as Stage
    else if (event.type === 'message') this.message(event, key)
    else if (event.type === 'error' && event.content) {
      const { message, error_code, is_recoverable } = event.content as { message: string; error_code: string; is_recoverable: boolean }
      this.problem = { message, code: error_code, recoverable: is_recoverable }
    } else this.note(event, key)
    if (event.is_final && !this.own) this.end()
  }

  private message(event: AuthoringEvent, key: string): void {
    if (event.content) {
      this.growing = null
      this.lines = [...this.lines, { key, role: 'assistant', text: String(event.content.text), at: event.timestamp }]
    } else if (event.delta !== undefined) {
      const stream = event.stream_id ?? ''
      this.growing = { stream, text: this.growing?.stream === stream ? this.growing.text + event.delta : event.delta }
    }
  }

  private note(event: AuthoringEvent, key: string): void {
    const data = event.data ?? {}
    const attempt = Number(data.attempt ?? 1)
    const line: Line = { key, role: 'note', text: '', at: event.timestamp, values: { attempt } }
    if (event.type === 'workflow_generation_started') line.note = 'generating'
    else if (event.type === 'workflow_draft') {
      line.note = 'draft'
      line.values = { attempt, count: Number(data.tests ?? 0) }
    } else if (event.type === 'workflow_debugging') {
      const tests = data.tests as { passed?: number; failed?: unknown[] } | undefined
      line.note = data.ok === true ? 'passed' : 'failed'
      line.values = { attempt, passed: tests?.passed ?? 0, failed: (tests?.failed ?? []).length }
    } else if (event.type === 'workflow_complete') line.note = data.published === true ? 'published' : 'ready'
    else return
    this.notes = [...this.notes, line]
    this.lines = [...this.lines, line]
  }

  private end(): void {
    this.busy = false
    this.growing = null
    void this.load()
  }
}

export function useDialogue(session_id: () => string): { readonly current: Dialogue | null } {
  let current = $state.raw<Dialogue | null>(null)
  $effect.pre(() => {
    const dialogue = new Dialogue(session_id())
    current = dialogue
    void dialogue.start()
    return () => dialogue.stop()
  })
  return {
    get current() {
      return current
    },
  }
}
