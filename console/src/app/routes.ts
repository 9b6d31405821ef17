// All views: their addresses, their place in the navigation, and how they are loaded. A new view is one entry here.

import { account } from '$/api/account.svelte'
import type { IconName } from '$/components/icons'
import type { CommonKey } from '$/i18n'
import type { Component } from 'svelte'

export type Group = 'talk' | 'operate' | 'build' | 'system'
export const GROUPS: readonly Group[] = ['talk', 'operate', 'build', 'system']

export interface Route {
  id: string
  /** Address below `/console`. `:name` becomes a property of the view's `params`. */
  pattern: string
  /** Key of the title in the common catalogue. */
  title: CommonKey
  /** The view's component gets the property `params`: the values of the places in `pattern`. */
  load: () => Promise<{ default: Component<any> }>
  /** Place in the navigation; without it the view is reached from another one, `under`. */
  nav?: { group: Group; icon: IconName }
  /** Id of the route whose entry in the navigation is marked as current. */
  under?: string
  /** Least role that may open it; `viewer` unless given. */
  role?: 'viewer' | 'agent' | 'operator' | 'admin'
  /** The role `author`, which has no rank among the others, may open it, too. */
  author?: boolean
}

/** Whether the user's role may open a view. */
export const mayOpen = (route: Route) => account.may(route.role ?? 'viewer') || (route.author === true && account.mayAuthor)

// Two addresses of one view have the same function: then the view stays when the address changes from one to the other.
const playground = () => import('$/views/playground/Playground.svelte')
const inbox = () => import('$/views/inbox/Inbox.svelte')

export const routes: readonly Route[] = [
  {
    id: 'playground',
    pattern: '/playground',
    title: 'view.playground',
    nav: { group: 'talk', icon: 'chat' },
    role: 'admin',
    load: playground,
  },
  {
    id: 'playground-session',
    pattern: '/playground/:session_id',
    title: 'view.playground',
    under: 'playground',
    role: 'admin',
    load: playground,
  },
  {
    id: 'inbox',
    pattern: '/inbox',
    title: 'view.inbox',
    nav: { group: 'talk', icon: 'inbox' },
    load: inbox,
  },
  {
    id: 'inbox-session',
    pattern: '/inbox/:session_id',
    title: 'view.inbox',
    under: 'inbox',
    load: inbox,
  },
  {
    id: 'sessions',
    pattern: '/sessions',
    title: 'view.sessions',
    nav: { group: 'operate', icon: 'sessions' },
    load: () => import('$/views/sessions/Sessions.svelte'),
  },
  {
    id: 'session',
    pattern: '/sessions/:session_id',
    title: 'view.session',
    under: 'sessions',
    load: () => import('$/views/session/Session.svelte'),
  },
  {
    id: 'turn',
    pattern: '/sessions/:session_id/turns/:turn_id',
    title: 'view.turn',
    under: 'sessions',
    load: () => import('$/views/turn/Turn.svelte'),
  },
  {
    id: 'runs',
    pattern: '/runs',
    title: 'view.runs',
    nav: { group: 'operate', icon: 'runs' },
    load: () => import('$/views/runs/Runs.svelte'),
  },
  {
    id: 'run',
    pattern: '/runs/:run_id',
    title: 'view.run',
    under: 'runs',
    load: () => import('$/views/run/Run.svelte'),
  },
  {
    id: 'author',
    pattern: '/author',
    title: 'view.author',
    nav: { group: 'build', icon: 'author' },
    author: true,
    load: () => import('$/views/author/Author.svelte'),
  },
  {
    id: 'dialogue',
    pattern: '/author/:session_id',
    title: 'view.author',
    under: 'author',
    author: true,
    load: () => import('$/views/author/Dialogue.svelte'),
  },
  {
    id: 'agents',
    pattern: '/agents',
    title: 'view.agents',
    nav: { group: 'build', icon: 'agents' },
    load: () => import('$/views/documents/Agents.svelte'),
  },
  {
    id: 'agent',
    pattern: '/agents/:agent_id',
    title: 'view.agent',
    under: 'agents',
    load: () => import('$/views/documents/Agent.svelte'),
  },
  {
    id: 'workflows',
    pattern: '/workflows',
    title: 'view.workflows',
    nav: { group: 'build', icon: 'workflows' },
    load: () => import('$/views/documents/Workflows.svelte'),
  },
  {
    id: 'workflow',
    pattern: '/workflows/:workflow_id',
    title: 'view.workflow',
    under: 'workflows',
    load: () => import('$/views/documents/Workflow.svelte'),
  },
  {
    id: 'knowledge',
    pattern: '/knowledge',
    title: 'view.knowledge',
    nav: { group: 'build', icon: 'knowledge' },
    load: () => import('$/views/knowledge/Knowledge.svelte'),
  },
  {
    id: 'timers',
    pattern: '/timers',
    title: 'view.timers',
    nav: { group: 'operate', icon: 'timers' },
    load: () => import('$/views/timers/Timers.svelte'),
  },
  {
    id: 'letters',
    pattern: '/dead',
    title: 'view.letters',
    nav: { group: 'operate', icon: 'letters' },
    load: () => import('$/views/letters/Letters.svelte'),
  },
  {
    id: 'letter',
    pattern: '/dead/:which',
    title: 'view.letter',
    under: 'letters',
    load: () => import('$/views/letters/Letter.svelte'),
  },
  {
    id: 'models',
    pattern: '/models',
    title: 'view.models',
    nav: { group: 'system', icon: 'models' },
    load: () => import('$/views/system/Models.svelte'),
  },
  {
    id: 'doctor',
    pattern: '/doctor',
    title: 'view.doctor',
    nav: { group: 'system', icon: 'doctor' },
    load: () => import('$/views/system/Doctor.svelte'),
  },
  {
    id: 'metrics',
    pattern: '/metrics',
    title: 'view.metrics',
    nav: { group: 'system', icon: 'metrics' },
    load: () => import('$/views/system/Metrics.svelte'),
  },
  {
    id: 'audit',
    pattern: '/audit',
    title: 'view.audit',
    nav: { group: 'system', icon: 'audit' },
    role: 'admin',
    load: () => import('$/views/system/Audit.svelte'),
  },
]
