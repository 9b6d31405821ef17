// A running turn, built from its events: the finished steps and those under way.

import type { LiveEvent } from '$/live'
import { depthOf, type Row } from './rows'

export interface TurnEnd {
  jobs: string[]
  outcome: string
  replies: number
  attempts: number
}

export class LiveTurn {
  readonly rows: readonly Row[] = []
  readonly statuses: readonly { status: string; at: string }[] = []
  readonly end: TurnEnd | null = null
  readonly began: number = Date.now()

  constructor(
    readonly session_id: string,
    readonly turn_id: string,
  ) {}

  /** The turn with one more event. Events of other turns change nothing. */
  with(live: LiveEvent, now: number = Date.now()): LiveTurn {
    const { event } = live
    if (live.type === 'run') return this.run(event, now)
    if (event.turn_id !== this.turn_id) return this
    const end = (event.turn as TurnEnd | undefined) ?? this.end
    if (event.turn !== undefined && this.rows.some((row) => row.end === null)) return this.stopped(now).with(live, now)
    if (live.type === 'status') return this.change({ end, statuses: [...this.statuses, { status: String(event.status), at: String(event.at) }] })
    if (live.type === 'step' && event.phase !== undefined) return this.begun(event, now)
    if (live.type === 'step') {
      const row: Row = {
        key: String(event.key),
        kind: String(event.kind),
        target: String(event.target ?? ''),
        start: now - Number(event.ms ?? 0),
        end: now,
        ok: event.ok !== false,
        depth: depthOf(String(event.key)),
      }
      return this.put(row)
    }
    return end === this.end ? this : this.change({ end })
  }

  /** A step that is under way. Events of a step that has ended may come first, after a repeat. */
  private begun(event: Record<string, unknown>, now: number): LiveTurn {
    const key = String(event.key)
    if (event.phase !== 'begin' || this.rows.some((row) => row.key === key && row.end !== null)) return this
    return this.put({ key, kind: String(event.kind), target: String(event.target ?? ''), start: now - Number(event.ms ?? 0), end: null, ok: true, depth: depthOf(key) })
  }

  private run(event: Record<string, unknown>, now: number): LiveTurn {
    const type = String(event.type)
    const path = String(event.path ?? '')
    const key = `run:${String(event.root_run_id)}/${path}`
    const known = this.rows.find((row) => row.key === key)
    if (/^(run|stage|branch)_started$/.test(type) && !known) {
      const name = path.split('/').at(-1) ?? ''
      return this.put({ key, kind: 'stage', target: name || 'run', start: now, end: null, ok: true, depth: Number(event.depth ?? 0) + (path ? 1 : 0) })
    }
    if (known && known.end === null && /^(stage|branch|run)_(completed|failed)$/.test(type)) {
      return this.put({ ...known, end: now, ok: type !== 'run_failed' && !event.error })
    }
    return this
  }

  /** Steps that a cancelled turn has left do not run on. */
  private stopped(now: number): LiveTurn {
    return this.change({ rows: this.rows.map((row) => (row.end === null ? { ...row, end: now, ok: false } : row)) })
  }

  private put(row: Row): LiveTurn {
    const rows = this.rows.some(({ key }) => key === row.key) ? this.rows.map((other) => (other.key === row.key ? row : other)) : [...this.rows, row]
    return this.change({ rows })
  }

  private change(changes: Partial<Pick<LiveTurn, 'rows' | 'statuses' | 'end'>>): LiveTurn {
    return Object.assign(Object.create(LiveTurn.prototype) as LiveTurn, this, changes)
  }
}
