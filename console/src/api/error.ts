/** An error of a request: the `error` of the response, or one of the console's own codes `unreachable` and `unreadable`. */
export class ApiError extends Error {
  override readonly name = 'ApiError'

  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly hint: string | null = null,
    /** Seconds after which the request may be sent again. */
    readonly retryAfter: number | null = null,
  ) {
    super(message)
  }

  /** The same request may succeed later, and repeating it does no harm. */
  get temporary(): boolean {
    return this.code === 'unreachable' || this.status === 503 || this.status === 429
  }
}

export function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === 'AbortError'
}
