// Who is signed in, and what the role may do.

import { onSignedOut, request } from './client'
import { ApiError } from './error'

export type Role = 'channel' | 'author' | 'viewer' | 'agent' | 'operator' | 'admin'

export interface Me {
  name: string
  role: Role
  login: 'none' | 'token' | 'cookie'
  expires_at?: string
  version: string
  backend: string
  dev: boolean
}

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
      this.me = await request<Me>('GET', '/api/v1/me')
      this.state = 'in'
      this.expired = false
    } catch (error) {
      this.error = error
      this.state = error instanceof ApiError && error.status === 401 ? 'out' : 'failed'
    }
  }

  async signIn(token: string): Promise<void> {
    await request('POST', '/api/v1/login', { body: { token } })
    await this.load()
  }

  async signOut(): Promise<void> {
    await request('POST', '/api/v1/logout').catch(() => undefined)
    this.me = null
    this.expired = false
    this.state = 'out'
  }

  /** Whether the role has at least the rights of `role`. The role `author` has no rank among the others. */
  may(role: Exclude<Role, 'channel' | 'author'>): boolean {
    if (this.me === null) return false
    return RANK[this.me.role] >= RANK[role]
  }
}

export const account = new Account()

onSignedOut(() => {
  if (account.state !== 'in') return
  account.expired = true
  account.state = 'out'
})
