// Replies of a session from its events: whole texts, and the text that grows. The rules are those of docs/channels.md,
// "Texts that grow".

import type { Schema } from '$/api'

export type ReplyEvent = Schema<'Reply'>

export interface Growing {
  stream_id: string
  turn_id: string
  text: string
  at: string
  next: number
}

export class Texts {
  /** Whole replies in the order of their events. */
  readonly replies: ReplyEvent[] = []
  growing: Growing | null = null
  private readonly shown = new Set<string>()

  reply(reply: ReplyEvent): void {
    if (reply.kind === 'chunk') this.chunk(reply)
    else if (!this.shown.has(reply.reply_id)) {
      this.shown.add(reply.reply_id)
      this.replies.push(reply)
      this.growing = null
    }
  }

  /** The end of a turn completes what it has not replaced. */
  end(turn_id: string): void {
    if (this.growing?.turn_id === turn_id) this.growing = null
  }

  /** Forgets whole replies that are elsewhere now, such as in the session's history. */
  drop(gone: (reply: ReplyEvent) => boolean): void {
    const kept = this.replies.filter((reply) => !gone(reply))
    this.replies.splice(0, this.replies.length, ...kept)
  }

  private chunk(chunk: ReplyEvent): void {
    const { growing } = this
    const stream_id = chunk.stream_id ?? ''
    if (growing && growing.stream_id === stream_id) {
      if (chunk.seq !== growing.next) return
      this.growing = { ...growing, text: growing.text + chunk.text, next: growing.next + 1 }
    } else if (chunk.seq === 0 && (!growing || growing.turn_id !== chunk.turn_id || chunk.supersedes === growing.stream_id)) {
      this.growing = { stream_id, turn_id: chunk.turn_id, text: chunk.text, at: chunk.at, next: 1 }
    }
  }
}
