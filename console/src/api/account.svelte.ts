// The user who is signed in, and the rights of the user's role.

import { get, onSignedOut, post, type Schema } from './client'
import { ApiError } from './error'

export type Me = Schema<'Me'>
export type Role = Me['role']

/** Roles with more rights include those before them; `channel` and `author` stand aside. */
const RANK: Record<Role, number> = { channel: 0, author: 0, viewer: 1, agent: 2, operator: 3, admin: 4 }

class Account {
  me = $state.raw<Me | null>(null)
  state = $state<'loading' | 'in' | 'out' | 'failed'>('loading')
  error = $state.raw<unknown>(null)
  /** True after a login has ended while the console was in use. */
  expired = $state(false)

  async load(): Promise<void> {
    this.state = this.me ? this.state : 'loading'
    try {
      this.me = await get('/api/v1/me')
      this.state = 'in'
      this.expired = false
    } catch (error) {
      this.error = error
      // A gateway that is unreachable for a moment does not take the views away.
      if (error instanceof ApiError && error.status === 401) this.state = 'out'
      else if (this.state !== 'in') this.state = 'failed'
    }
  }

  async signIn(token: string): Promise<void> {
    await post('/api/v1/login', { body: { token } })
    await this.load()
  }

  /** Fails if the gateway has not removed the cookie: the login still holds then. */
  async signOut(): Promise<void> {
    await post('/api/v1/logout')
    this.me = null
    this.expired = false
    this.state = 'out'
  }

  /** Whether the role has at least the rights of `role`. The role `author` has no rank among the others. */
  may(role: Exclude<Role, 'channel' | 'author'>): boolean {
    if (this.me === null) return false
    return RANK[this.me.role] >= RANK[role]
  }

  /** Whether the role may write messages as a user. */
  get mayTalk(): boolean {
    return this.may('admin')
  }

  /** Whether the role may write dialogues with the authoring agent. */
  get mayAuthor(): boolean {
    return this.may('operator') || this.me?.role === 'author'
  }
}

export const account = new Account()

onSignedOut(() => {
  if (account.state !== 'in') return
  account.expired = true
  account.state = 'out'
})
