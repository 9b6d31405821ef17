// Messages between a tab and the reader of the event stream.

import type { Schema } from '$/api'

export type EventType = 'reply' | 'status' | 'step' | 'run' | 'decision' | 'turn' | 'authoring' | 'handoff'

/** An event of the stream of all sessions and runs. `seq` is its sequence in the stream of events. */
export interface LiveEvent extends Schema<'LocatedEvent'> {
  seq: number
  type: EventType
}

export interface LiveState {
  status: 'connecting' | 'live' | 'offline' | 'signed_out' | 'unsupported'
  /** When the status began, in milliseconds since 1970. */
  since: number
  /** Sequence up to which all events have been read; null before the stream is open for the first time. */
  position: number | null
}

export interface Filter {
  types?: EventType[]
  session_id?: string
}

export type FromTab =
  /** Follow events after a sequence. `after: null` means from now on: the reader confirms with `following`. */
  | { kind: 'follow'; id: number; after: number | null; filter: Filter }
  | { kind: 'unfollow'; id: number }
  /** The tab has signed in, or the user wants another attempt now. */
  | { kind: 'retry' }
  /** The user has signed out: the reader ends its connection and forgets the events that the login could read. */
  | { kind: 'reset' }
  | { kind: 'bye' }

export type ToTab =
  | { kind: 'state'; state: LiveState }
  | { kind: 'following'; id: number }
  | { kind: 'events'; id: number; events: LiveEvent[] }
  /** Events of this range are missing: the page has to load its data again. The events after `to` follow. */
  | { kind: 'gap'; id: number; to: number }

export interface Port {
  send(message: ToTab): void
}

export function passes(filter: Filter, event: LiveEvent): boolean {
  if (filter.session_id !== undefined && filter.session_id !== event.session_id) return false
  return filter.types === undefined || filter.types.includes(event.type)
}
