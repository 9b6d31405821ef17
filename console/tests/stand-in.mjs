// A stand-in for the parts of the gateway that the console needs and an older program lacks: it serves `dist` with the
// gateway's headers, answers /me and /login, merges the streams of all sessions into /api/v1/events, and passes everything else
// on. For tests and screenshots only.
//
//   TURNWHEEL_URL=http://127.0.0.1:8080 PORT=5198 [TOKEN=secret] node tests/stand-in.mjs
import { createServer, request as httpRequest } from 'node:http'
import { existsSync, readFileSync } from 'node:fs'
import { extname, join } from 'node:path'

const gateway = new URL(process.env.TURNWHEEL_URL ?? 'http://127.0.0.1:8080')
const port = Number(process.env.PORT ?? 5198)
const dist = join(import.meta.dirname, '../dist')
const TYPES = { '.html': 'text/html; charset=utf-8', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml', '.json': 'application/json' }
const HEADERS = {
  'content-security-policy': "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; style-src 'self'",
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cache-control': 'no-cache',
}

let signedIn = !process.env.TOKEN
const log = []
const readers = new Set()
const followed = new Map()
let waiting = []

function emit(event) {
  waiting.push(event)
}

setInterval(() => {
  if (waiting.length === 0) return
  const events = waiting.sort((a, b) => a.seq - b.seq)
  waiting = []
  for (const event of events) {
    log.push(event)
    for (const reader of readers) reader(event)
  }
}, 60)

const last = () => log.at(-1)?.seq ?? 0

async function follow(session) {
  if (followed.has(session.session_id)) return
  followed.set(session.session_id, session)
  for (let id = '0'; ; await new Promise((done) => setTimeout(done, 200))) {
    try {
      const address = new URL(`/api/v1/sessions/${encodeURIComponent(session.session_id)}/events?last_event_id=${id}`, gateway)
      const response = await fetch(address)
      if (response.status === 404) continue
      let text = ''
      for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {
        const blocks = (text + piece).split('\n\n')
        text = blocks.pop()
        for (const block of blocks) {
          const field = (name) => block.match(new RegExp(`^${name}: ?(.*)$`, 'm'))?.[1]
          if (!field('data')) continue
          id = field('id')
          emit({ seq: Number(id), type: field('event'), data: { session_id: session.session_id, channel: session.channel, agent_id: session.agent_id, event: JSON.parse(field('data')) } })
        }
      }
    } catch {
      // The program restarts: try again.
    }
  }
}

async function look() {
  try {
    const response = await fetch(new URL('/api/v1/sessions?limit=1000', gateway))
    for (const session of (await response.json()).sessions) void follow(session)
  } catch {
    // The program restarts: try again.
  }
}
setInterval(look, 400)
await look()

function events(request, response) {
  const after = new URL(request.url, 'http://x').searchParams.get('after')
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  response.write(`event: open\ndata: ${JSON.stringify({ as_of: last() })}\n\n`)
  const write = ({ seq, type, data }) => response.write(`id: ${seq}\nevent: ${type}\ndata: ${JSON.stringify(data)}\n\n`)
  if (after !== null) log.filter(({ seq }) => seq > Number(after)).forEach(write)
  readers.add(write)
  response.on('close', () => readers.delete(write))
}

function pass(request, response) {
  const listing = request.method === 'GET' && /^\/api\/v1\/(sessions|runs|timers|dead)(\?|$)/.test(request.url)
  const body = []
  request.on('data', (piece) => body.push(piece))
  request.on('end', () => {
    const content = Buffer.concat(body)
    const as_of = last()
    const headers = { ...request.headers, host: gateway.host }
    delete headers.origin
    delete headers['accept-encoding']
    const passed = httpRequest(new URL(request.url, gateway), { method: request.method, headers }, (answer) => {
      if (request.method === 'POST' && request.url === '/api/v1/messages' && answer.statusCode === 202) void follow({ channel: 'web', ...JSON.parse(content.toString()) })
      if (!listing || answer.statusCode !== 200) {
        response.writeHead(answer.statusCode, answer.headers)
        answer.pipe(response)
        return
      }
      const pieces = []
      answer.on('data', (piece) => pieces.push(piece))
      answer.on('end', () => respond(response, 200, { ...JSON.parse(Buffer.concat(pieces).toString()), as_of }))
    })
    passed.on('error', () => respond(response, 502, {}))
    passed.end(content)
  })
}

function respond(response, status, value) {
  response.writeHead(status, { 'content-type': 'application/json' }).end(value === undefined ? undefined : JSON.stringify(value))
}

function login(request, response) {
  let text = ''
  request.on('data', (piece) => (text += piece))
  request.on('end', () => {
    signedIn = JSON.parse(text).token === process.env.TOKEN
    if (signedIn) respond(response, 200, { name: 'anna', role: 'admin', expires_at: new Date(Date.now() + 43_200_000).toISOString() })
    else respond(response, 401, { error: { code: 'unauthorized', message: 'the token is not valid', hint: 'use a token of `[[gateway.access]]` or `gateway.tokens`' } })
  })
}

createServer((request, response) => {
  const { pathname } = new URL(request.url, 'http://x')
  if (pathname === '/') return response.writeHead(302, { location: '/console/' }).end()
  if (pathname.startsWith('/console')) {
    const file = join(dist, pathname.slice('/console'.length))
    const found = extname(pathname) !== '' && existsSync(file) ? file : extname(pathname) === '' ? join(dist, 'index.html') : null
    if (!found) return response.writeHead(404).end()
    return response.writeHead(200, { ...HEADERS, 'content-type': TYPES[extname(found)] ?? 'application/octet-stream' }).end(readFileSync(found))
  }
  if (pathname === '/api/v1/login') return login(request, response)
  if (!signedIn) return respond(response, 401, { error: { code: 'unauthorized', message: 'no valid token', hint: null } })
  if (pathname === '/api/v1/logout') {
    signedIn = false
    return respond(response, 204)
  }
  if (pathname === '/api/v1/me') {
    return respond(response, 200, { name: process.env.TOKEN ? 'anna' : 'dev', role: 'admin', login: process.env.TOKEN ? 'cookie' : 'none', version: '0.1.0', backend: 'embedded', dev: true })
  }
  if (pathname === '/api/v1/events') return events(request, response)
  pass(request, response)
}).listen(port, '127.0.0.1', () => console.log(`stand-in on http://127.0.0.1:${port}/console/`))
