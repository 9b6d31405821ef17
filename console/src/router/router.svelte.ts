// The address of the browser as state. Links are ordinary `<a href>`: one listener on the document follows them.

import { BASE, type Query } from './paths'

function here(): { path: string; query: URLSearchParams } {
  const path = location.pathname.startsWith(BASE) ? location.pathname.slice(BASE.length) : location.pathname
  return { path: path === '' ? '/' : path, query: new URLSearchParams(location.search) }
}

class Router {
  path = $state('/')
  query = $state.raw(new URLSearchParams())
  /** Counts visits of another page, so that the focus moves then, and not when a filter or the address of the same page changes. */
  visit = $state(0)

  start(): void {
    this.read()
    addEventListener('popstate', () => this.read())
    document.addEventListener('click', (event) => this.click(event))
  }

  go(href: string, options: { replace?: boolean } = {}): void {
    const target = new URL(href, location.href)
    if (target.href === location.href) options = { replace: true }
    history[options.replace ? 'replaceState' : 'pushState'](null, '', target)
    this.read(!options.replace)
  }

  /** Changes values of the query and keeps the others; undefined and empty values leave it. */
  setQuery(changes: Query, options: { replace?: boolean } = { replace: true }): void {
    const query = new URLSearchParams(this.query)
    for (const [name, value] of Object.entries(changes)) {
      if (value) query.set(name, value)
      else query.delete(name)
    }
    const text = query.toString()
    this.go(`${location.pathname}${text ? `?${text}` : ''}`, options)
  }

  private read(visits = true): void {
    const { path, query } = here()
    if (visits && path !== this.path) {
      this.visit++
      scrollTo(0, 0)
    }
    this.path = path
    this.query = query
  }

  private click(event: MouseEvent): void {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return
    const link = (event.target as Element | null)?.closest?.('a')
    if (!link || link.target || link.hasAttribute('download') || link.origin !== location.origin) return
    if (link.pathname !== BASE && !link.pathname.startsWith(`${BASE}/`)) return
    if (link.hash && link.pathname === location.pathname) return
    event.preventDefault()
    this.go(link.href)
  }
}

export const router = new Router()
