// How many conversations wait for a human: the count in the title and in the navigation, and a sound for a new one.

import { Query, type LiveEvent } from '$/live'
import { handoffs, type HandoffList } from './api'
import { ring } from './sound'

/**
 * Whether events may have changed a listing of handoffs. A user's message to a human has no event of a handoff: its turn ends with the
 * outcome `transferred`.
 */
export function concerns(events: readonly LiveEvent[], known: (session_id: string) => boolean): boolean {
  return events.some(({ type, session_id, event }) => {
    if (type === 'handoff') return event.change !== 'typing'
    return (event.turn as { outcome?: string } | undefined)?.outcome === 'transferred' || known(session_id)
  })
}

class Waiting {
  count = $state(0)
  private mine = new Map<string, number>()
  private query: Query<HandoffList> | null = null

  /** Follows the handoffs until the returned function is called. */
  start(): () => void {
    let first = true
    const query = new Query<HandoffList>({
      filter: { types: ['handoff', 'turn'] },
      every: 1000,
      load: async (signal) => {
        const [waiting, mine] = await Promise.all([handoffs({ state: 'waiting', limit: 1 }, signal), handoffs({ state: 'mine', limit: 50 }, signal)])
        this.take(waiting.counts.waiting, mine, first)
        first = false
        return mine
      },
      apply: (events) => concerns(events, (session_id) => this.mine.has(session_id)),
    })
    this.query = query
    void query.start()
    return () => {
      query.stop()
      if (this.query === query) this.query = null
      this.count = 0
      this.mine.clear()
    }
  }

  /** Another conversation waits, or a user has written to this person: both ring. */
  private take(count: number, { handoffs: mine }: HandoffList, first: boolean): void {
    const written = mine.some(({ session_id, unread }) => unread > (this.mine.get(session_id) ?? 0))
    if (!first && (count > this.count || (written && document.hidden))) ring()
    this.count = count
    this.mine = new Map(mine.map(({ session_id, unread }) => [session_id, unread]))
  }
}

export const waiting = new Waiting()
