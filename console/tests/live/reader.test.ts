// The reader against a small gateway, which cuts connections, falls silent and refuses.
import { createServer, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { LiveEvent, LiveState } from '$/live/protocol'
import { Reader } from '$/live/reader'

let server: Server
let address: string
let asked: (number | null)[]
let answers: ((response: ServerResponse) => void)[]
let reader: Reader
let events: LiveEvent[]
let states: LiveState[]
let gaps: [number, number][]

const frame = (seq: number) => `id: ${seq}\nevent: status\ndata: {"session_id":"s1","channel":"web","event":{"n":${seq}}}\n\n`
const open = (response: ServerResponse, as_of: number) => {
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  response.write(`event: open\ndata: {"as_of":${as_of}}\n\n`)
}
const until = async (condition: () => boolean) => {
  for (let tries = 0; tries < 300; tries++) {
    if (condition()) return
    await new Promise((done) => setTimeout(done, 10))
  }
  expect(condition()).toBe(true)
}

beforeEach(async () => {
  asked = []
  answers = []
  events = []
  states = []
  gaps = []
  server = createServer((request, response) => {
    const after = new URL(request.url!, 'http://x').searchParams.get('after')
    asked.push(after === null ? null : Number(after))
    const answer = answers.shift()
    if (answer) answer(response)
    else open(response, 0)
  })
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  address = `http://127.0.0.1:${(server.address() as AddressInfo).port}/api/v1/events`
  reader = newReader()
})

/** Silence long enough that a busy machine does not cause it. */
function newReader(silence = 10_000): Reader {
  return new Reader(
    { state: (state) => states.push(state), events: (some) => events.push(...some), gap: (from, to) => gaps.push([from, to]) },
    { address, pauses: [5], silence },
  )
}

afterEach(() => {
  reader.stop()
  server.closeAllConnections()
  server.close()
})

describe('Reader', () => {
  it('goes on after the last event, and drops repeats', async () => {
    answers.push(
      (response) => {
        open(response, 7)
        response.write(frame(8) + frame(9))
        setTimeout(() => response.destroy(), 20)
      },
      (response) => {
        open(response, 11)
        response.write(frame(9) + frame(10) + frame(11))
      },
    )
    void reader.run()
    await until(() => events.length === 4)
    expect(asked).toEqual([null, 9])
    expect(events.map(({ seq }) => seq)).toEqual([8, 9, 10, 11])
    expect(states.map(({ status }) => status)).toEqual(['live', 'offline', 'live'])
    expect(reader.state.position).toBe(11)
  })

  it('reports a gap and goes on after it', async () => {
    answers.push((response) => {
      open(response, 5)
      response.write(frame(6) + 'event: gap\ndata: {"from":7,"to":20}\n\n' + frame(21))
      setTimeout(() => response.destroy(), 20)
    })
    void reader.run()
    await until(() => asked.length === 2)
    expect(gaps).toEqual([[7, 20]])
    expect(asked).toEqual([null, 21])
  })

  it('follows a stream that has replaced another one, although its sequences are lower', async () => {
    answers.push(
      (response) => {
        open(response, 50)
        setTimeout(() => response.destroy(), 10)
      },
      (response) => {
        open(response, 2)
        response.write('event: gap\ndata: {"from":1,"to":2}\n\n' + frame(3))
      },
    )
    void reader.run()
    await until(() => events.length === 1)
    expect(gaps).toEqual([[1, 2]])
    expect(reader.state.position).toBe(3)
  })

  it('ends the connection of a login that has ended, and forgets its position', async () => {
    answers.push((response) => open(response, 7))
    void reader.run()
    await until(() => states.at(-1)?.status === 'live')
    reader.reset()
    await until(() => asked.length === 2)
    expect(asked).toEqual([null, null])
  })

  it('leaves a connection that is silent', async () => {
    answers.push((response) => open(response, 3))
    reader = newReader(200)
    void reader.run()
    await until(() => asked.length === 2)
    expect(asked).toEqual([null, 3])
  })

  it('waits after a 401 until it is told to try again', async () => {
    answers.push((response) => response.writeHead(401).end('{}'))
    void reader.run()
    await until(() => states.length === 1)
    expect(states[0]!.status).toBe('signed_out')
    await new Promise((done) => setTimeout(done, 50))
    expect(asked).toHaveLength(1)
    reader.retry()
    await until(() => states.at(-1)!.status === 'live')
  })

  it('says since when it is not live', async () => {
    answers.push(
      (response) => {
        open(response, 1)
        setTimeout(() => response.destroy(), 10)
      },
      (response) => response.writeHead(503).end('{}'),
      (response) => response.writeHead(503).end('{}'),
    )
    void reader.run()
    await until(() => states.length === 5)
    const offline = states.filter(({ status }) => status === 'offline')
    expect(new Set(offline.map(({ since }) => since)).size).toBe(1)
  })
})
