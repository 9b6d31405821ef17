// A session on a page: its document, and the events since it was loaded.

import { ApiError, frames, get, open, type Schema } from '$/api'
import { live, type Following, type LiveEvent } from '$/live'
import { inHistory, items, type Item, type Sent } from './items'
import { Texts, type ReplyEvent } from './texts'
import { LiveTurn } from '$/trace/live-turn'

export type SessionDocument = Schema<'SessionDetails'>
export type Status = Schema<'Status'>

/** The journal of the running turn is read from the session's own stream until it is silent for this long. */
const SILENCE = 400

export class SessionView {
  document = $state.raw<SessionDocument | null>(null)
  error = $state.raw<unknown>(undefined)
  loading = $state(true)
  items = $state.raw<Item[]>([])
  status = $state<Status>('ready')
  reason = $state<string | null>(null)
  /** The turn under way, or the last one that this page has seen. */
  turn = $state.raw<LiveTurn | null>(null)
  /** Raised at each end of a turn: listings of turns load again. */
  turns = $state(0)

  /** A colleague who is writing to the user. */
  typing = $state.raw<{ by: string; at: number } | null>(null)

  private texts = new Texts()
  private sent: Sent[] = []
  private readonly ended = new Set<string>()
  private readonly jobs = new Set<string>()
  private newest: LiveEvent | null = null
  private seen = 0
  /** Events of the turn under way, until `catchUp` has read those before them; null afterwards. */
  private recent: LiveEvent[] | null = []
  private following: Following | null = null
  private readonly abort = new AbortController()
  private timer: ReturnType<typeof setTimeout> | null = null
  private busy = false
  /** False while there is nothing to load. */
  private begun: boolean

  constructor(
    readonly session_id: string,
    /** The session begins with the first message of this page. */
    isNew = false,
  ) {
    this.begun = !isNew
  }

  async start(): Promise<void> {
    this.following = live.follow({
      filter: { session_id: this.session_id },
      onEvents: (events) => this.take(events),
      onGap: () => this.gap(),
    })
    await this.following.ready
    await this.begin()
  }

  private async begin(): Promise<void> {
    await this.load()
    if (this.document?.has_jobs) await this.catchUp()
    this.recent = null
  }

  stop(): void {
    this.abort.abort()
    this.following?.stop()
    if (this.timer) clearTimeout(this.timer)
  }

  /** Shows a message that the queue has taken, before the session's history has it. */
  said(message: Sent): void {
    this.begun = true
    const known = (job_id: string) => this.sent.some((other) => other.job_id === job_id) || this.jobs.has(job_id) || this.inHistory(job_id)
    if (!known(message.job_id)) this.sent = [...this.sent, message]
    this.build()
    // A worker takes the lane soon after; then the session has a document, timers, and an agent.
    if (!this.document) this.soon()
  }

  async load(): Promise<void> {
    if (this.busy) return this.soon()
    if (!this.begun) {
      this.loading = false
      return
    }
    this.busy = true
    const newest = this.newest
    try {
      const document = await get('/api/v1/sessions/{session_id}', { path: { session_id: this.session_id }, signal: this.abort.signal })
      const history = document.history ?? []
      this.document = document
      this.error = undefined
      // Events that came while the document was read may be newer than it.
      if (this.newest === newest) {
        this.newest = null
        this.status = document.workflow_state?.status ?? 'ready'
        this.reason = document.status_reason ?? null
      }
      this.texts.drop(inHistory(history, this.ended))
      this.sent = this.sent.filter(({ job_id }) => !this.jobs.has(job_id) && !this.inHistory(job_id))
    } catch (error) {
      if (this.abort.signal.aborted) return
      // Until a worker has taken the lane, a session with a message has no document.
      const unborn = this.sent.length > 0 && error instanceof ApiError && error.code === 'unknown_session'
      this.error = unborn ? undefined : error
    } finally {
      this.loading = false
      this.busy = false
    }
    this.build()
  }

  soon(): void {
    if (this.timer || this.abort.signal.aborted) return
    this.timer = setTimeout(() => {
      this.timer = null
      void this.load()
    }, 120)
  }

  private gap(): void {
    this.texts = new Texts()
    this.turn = null
    this.turns++
    // The sequences begin again if the stream of events was replaced.
    this.seen = 0
    this.recent = []
    void this.begin()
  }

  private take(events: LiveEvent[]): void {
    let over = false
    for (const live of events) {
      // The stream of all sessions and the session's own stream have the same sequences.
      if (live.seq <= this.seen) continue
      this.seen = live.seq
      this.recent?.push(live)
      const { event } = live
      if (live.type === 'handoff') {
        over = this.handoff(event) || over
        continue
      }
      if (live.type === 'reply') {
        this.texts.reply(event as unknown as ReplyEvent)
        this.typing = null
      }
      if (live.type === 'status') {
        this.newest = live
        this.status = event.status as Status
        this.reason = (event.reason as string | null) ?? null
      }
      const turn_id = typeof event.turn_id === 'string' ? event.turn_id : null
      if (turn_id && this.turn?.turn_id !== turn_id && live.type !== 'run') this.turn = new LiveTurn(this.session_id, turn_id)
      this.turn = this.turn?.with(live) ?? null
      const end = event.turn as { jobs: string[] } | undefined
      if (end && turn_id) {
        over = true
        if (this.recent) this.recent = []
        this.ended.add(turn_id)
        for (const job of end.jobs) this.jobs.add(job)
        this.texts.end(turn_id)
      }
    }
    this.build()
    if (over) {
      this.turns++
      this.soon()
    }
  }

  /** Shows a change of the handoff. Returns whether the document has to be loaded again. */
  private handoff(event: LiveEvent['event']): boolean {
    if (event.change === 'typing') {
      this.typing = { by: String(event.by ?? ''), at: Date.now() }
      return false
    }
    if (this.typing && event.by === this.typing.by) this.typing = null
    if (this.document && event.handoff) this.document = { ...this.document, handoff: event.handoff as SessionDocument['handoff'] }
    return true
  }

  /** Reads the events of the turn under way from the session's own stream: it began before this page followed. */
  private async catchUp(): Promise<void> {
    const abort = new AbortController()
    const stop = () => abort.abort()
    this.abort.signal.addEventListener('abort', stop)
    let watch = setTimeout(stop, 4 * SILENCE)
    let current: LiveEvent[] = []
    try {
      const options = { path: { session_id: this.session_id }, query: { last_event_id: 0 }, accept: 'text/event-stream', signal: abort.signal }
      const response = await open('GET', '/api/v1/sessions/{session_id}/events', options)
      for await (const frame of frames(response)) {
        clearTimeout(watch)
        watch = setTimeout(stop, SILENCE)
        const event = JSON.parse(frame.data) as LiveEvent['event']
        if (event.turn !== undefined) current = []
        else current.push({ seq: Number(frame.id), type: frame.event as LiveEvent['type'], session_id: this.session_id, channel: '', event })
      }
    } catch {
      // Aborted: everything that is stored has been read.
    } finally {
      clearTimeout(watch)
      this.abort.signal.removeEventListener('abort', stop)
    }
    if (this.abort.signal.aborted) return
    if (current.length === 0) return
    // Begin again with all events of the turn, from before and after the page began to follow.
    const known = current[current.length - 1]!.seq
    const all = [...current, ...(this.recent ?? []).filter(({ seq }) => seq > known)]
    this.texts = new Texts()
    this.turn = null
    this.seen = 0
    this.take(all)
  }

  private inHistory(job_id: string): boolean {
    return (this.document?.history ?? []).some((entry) => entry.role === 'user' && entry.turn_id === job_id)
  }

  private build(): void {
    // Events may come later than the document that has their words already.
    const history = this.document?.history ?? []
    const gone = inHistory(history, this.ended)
    const { growing } = this.texts
    const written = growing !== null && history.some((entry) => entry.turn_id === growing.turn_id && entry.text.startsWith(growing.text.trim()))
    this.items = items(
      history,
      this.sent.filter(({ job_id }) => !this.inHistory(job_id)),
      this.texts.replies.filter((reply) => !gone(reply)),
      written ? null : growing,
    )
  }
}
