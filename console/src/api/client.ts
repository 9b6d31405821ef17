// Requests to the gateway that serves the console. Types come from its OpenAPI description (schema.d.ts).

import { ApiError, isAbort } from './error'
import type { components, paths } from './schema'

export type Schemas = components['schemas']
export type Schema<N extends keyof Schemas> = Schemas[N]

type Method = 'get' | 'post' | 'put' | 'delete'
type Operation<P extends keyof paths, M extends Method> = paths[P] extends { [K in M]: infer O } ? O : never
export type PathWith<M extends Method> = { [P in keyof paths]: paths[P][M] extends object ? P : never }[keyof paths]

type PathOf<O> = O extends { parameters: { path: infer V } } ? { path: V } : { path?: never }
type QueryOf<O> = O extends { parameters: { query?: infer V } } ? { query?: V } : { query?: never }
type BodyOf<O> = O extends { requestBody: { content: { 'application/json': infer V } } }
  ? { body: V }
  : O extends { requestBody?: { content: { 'application/json': infer V } } }
    ? { body?: V }
    : { body?: never }
type Good<O> = O extends { responses: infer R } ? R[keyof R & (200 | 201 | 202 | 204)] : never
type Answer<O> = Good<O> extends { content: { 'application/json': infer V } } ? V : undefined

type Options<O> = PathOf<O> & QueryOf<O> & BodyOf<O> & { signal?: AbortSignal }
type Arguments<O> = {} extends Options<O> ? [options?: Options<O>] : [options: Options<O>]

export function get<P extends PathWith<'get'>>(path: P, ...[options]: Arguments<Operation<P, 'get'>>): Promise<Answer<Operation<P, 'get'>>> {
  return request('GET', path, options as RequestOptions)
}

export function post<P extends PathWith<'post'>>(path: P, ...[options]: Arguments<Operation<P, 'post'>>): Promise<Answer<Operation<P, 'post'>>> {
  return request('POST', path, options as RequestOptions)
}

export function put<P extends PathWith<'put'>>(path: P, ...[options]: Arguments<Operation<P, 'put'>>): Promise<Answer<Operation<P, 'put'>>> {
  return request('PUT', path, options as RequestOptions)
}

export function remove<P extends PathWith<'delete'>>(
  path: P,
  ...[options]: Arguments<Operation<P, 'delete'>>
): Promise<Answer<Operation<P, 'delete'>>> {
  return request('DELETE', path, options as RequestOptions)
}

export interface RequestOptions {
  path?: Record<string, string | number>
  query?: Record<string, string | number | boolean | null | undefined>
  body?: unknown
  /** A body that is not JSON. */
  text?: { type: string; content: string }
  headers?: Record<string, string>
  signal?: AbortSignal
}

let whenSignedOut: () => void = () => {}

/** Called after a 401: the login has ended, or there is none. */
export function onSignedOut(callback: () => void): void {
  whenSignedOut = callback
}

/** One request. Endpoints that the description lacks are called with this function; all others with `get`, `post`, … */
export async function request<T>(method: string, path: string, options: RequestOptions = {}): Promise<T> {
  const response = await open(method, path, options)
  if (response.status === 204) return undefined as T
  try {
    const text = await response.text()
    return (text === '' ? undefined : JSON.parse(text)) as T
  } catch (error) {
    if (isAbort(error)) throw error
    throw new ApiError(response.status, 'unreadable', '')
  }
}

/** One request whose body the caller reads: a stream, or a text that is not JSON. */
export async function open(method: string, path: string, options: RequestOptions & { accept?: string } = {}): Promise<Response> {
  const headers: Record<string, string> = { accept: options.accept ?? 'application/json', ...options.headers }
  const init: RequestInit = { method, credentials: 'same-origin', headers }
  if (options.signal) init.signal = options.signal
  if (options.body !== undefined) {
    init.body = JSON.stringify(options.body)
    headers['content-type'] = 'application/json'
  } else if (options.text) {
    init.body = options.text.content
    headers['content-type'] = options.text.type
  }
  let response: Response
  try {
    response = await fetch(url(path, options), init)
  } catch (error) {
    if (isAbort(error)) throw error
    throw new ApiError(0, 'unreachable', '')
  }
  if (!response.ok) {
    const error = await failure(response)
    if (response.status === 401 && path !== '/api/v1/login') whenSignedOut()
    throw error
  }
  return response
}

export function url(path: string, options: Pick<RequestOptions, 'path' | 'query'> = {}): string {
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(options.path?.[name] ?? '')))
  const query = new URLSearchParams()
  for (const [name, value] of Object.entries(options.query ?? {})) {
    if (value !== undefined && value !== null && value !== '') query.set(name, String(value))
  }
  const text = query.toString()
  return text ? `${filled}?${text}` : filled
}

async function failure(response: Response): Promise<ApiError> {
  const after = Number(response.headers.get('retry-after'))
  const retryAfter = Number.isFinite(after) && after > 0 ? after : null
  try {
    const { error } = (await response.json()) as Schema<'ErrorResponse'>
    return new ApiError(response.status, error.code, error.message, error.hint ?? null, retryAfter)
  } catch {
    // A proxy in front of the gateway answers in its own words, or the gateway is not there.
    return new ApiError(response.status, response.status >= 502 ? 'unreachable' : 'unreadable', '', null, retryAfter)
  }
}
