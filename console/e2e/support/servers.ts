// Servers next to the system: an API that repeats its requests, a page of another origin, a proxy that lets nothing pass.

import { createServer, type RequestListener } from 'node:http'

export interface Local {
  base: string
  /** Paths or hosts that were asked for. */
  seen: string[]
  stop(): Promise<void>
}

async function serve(respond: RequestListener, seen: string[] = []): Promise<Local> {
  const server = createServer(respond)
  server.on('connect', (request, socket) => {
    seen.push(request.url!)
    socket.end('HTTP/1.1 403 Forbidden\r\n\r\n')
  })
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  const { port } = server.address() as { port: number }
  return {
    base: `http://127.0.0.1:${port}`,
    seen,
    stop: () =>
      new Promise((done) => {
        server.closeAllConnections()
        server.close(() => done())
      }),
  }
}

/** Repeats the header `x-key` and the body, as a careless API does; with an error under `/refuse`. */
export function echoServer(): Promise<Local> {
  const seen: string[] = []
  return serve((request, response) => {
    seen.push(String(request.headers['x-key']))
    let text = ''
    request.on('data', (piece) => (text += piece))
    request.on('end', () => {
      response.writeHead(request.url === '/refuse' ? 400 : 200, { 'content-type': 'application/json' })
      response.end(JSON.stringify({ key: request.headers['x-key'], sent: text }))
    })
  }, seen)
}

/** A page of another origin, on the same site: the browser sends it no cookie of the gateway only because of its rules. */
export const foreignPage = (html: () => string) => serve((_, response) => response.setHeader('content-type', 'text/html').end(html()))

/** An HTTP proxy that records where its clients want to go. */
export function refusingProxy(): Promise<Local> {
  const seen: string[] = []
  return serve((request, response) => {
    seen.push(request.url!)
    response.writeHead(403).end()
  }, seen)
}
