// Requests of the tests to the API, next to the browser's.

export class Api {
  constructor(
    readonly base: string,
    private readonly token?: string,
  ) {}

  async send(method: string, path: string, body?: unknown, headers: Record<string, string> = {}): Promise<Response> {
    return fetch(`${this.base}${path}`, {
      method,
      headers: {
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...(this.token ? { authorization: `Bearer ${this.token}` } : {}),
        ...headers,
      },
      body: body === undefined ? undefined : JSON.stringify(body),
    })
  }

  /** Sends a request that has to succeed. */
  private async json(method: string, path: string, body?: unknown): Promise<any> {
    const response = await this.send(method, path, body)
    const text = await response.text()
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`)
    return text === '' ? undefined : JSON.parse(text)
  }

  get = (path: string) => this.json('GET', path)
  post = (path: string, body: unknown = {}) => this.json('POST', path, body)
  put = (path: string, body: unknown) => this.json('PUT', path, body)
}
