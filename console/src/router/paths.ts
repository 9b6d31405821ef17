// Addresses: `/sessions/:session_id/turns/:turn_id` with the values in its places, and back.

export const BASE = '/console'

export type Params = Record<string, string>
export type Query = Record<string, string | undefined>

/**
 * A value as one segment of a path. In addition to the usual percent-encoding, `.` becomes `~2E`: the gateway serves the console's
 * page for addresses without a file extension, and the ids of turns may contain dots.
 */
export function encodeSegment(value: string): string {
  return encodeURIComponent(value).replaceAll('~', '~7E').replaceAll('.', '~2E')
}

export function decodeSegment(segment: string): string {
  return decodeURIComponent(segment.replaceAll('~2E', '.').replaceAll('~7E', '%7E'))
}

/** The values in `path` of the places in `pattern`; null if it does not match. */
export function match(pattern: string, path: string): Params | null {
  const wanted = pattern.split('/')
  const given = path.split('/')
  if (wanted.length !== given.length) return null
  const params: Params = {}
  for (const [index, part] of wanted.entries()) {
    const segment = given[index]!
    if (part.startsWith(':')) {
      if (segment === '') return null
      try {
        params[part.slice(1)] = decodeSegment(segment)
      } catch {
        return null
      }
    } else if (part !== segment) return null
  }
  return params
}

/** The address of a pattern with values. Missing and empty values of the query are left out. */
export function address(pattern: string, params: Params = {}, query: Query = {}): string {
  const path = pattern.replace(/:(\w+)/g, (_, name: string) => encodeSegment(params[name] ?? ''))
  const search = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) if (value) search.set(name, value)
  const text = search.toString()
  return `${BASE}${path}${text ? `?${text}` : ''}`
}
