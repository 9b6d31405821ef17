// A model that a test scripts: a server with the chat completions protocol of OpenAI.

import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'

export interface Call {
  /** Name of the requested schema; empty for plain text. */
  schema: string
  /** The last user message. */
  user: string
  /** The texts of all messages, as they were sent. */
  texts: string[]
  /** Number of earlier calls for plain text that had the same last user message. */
  earlier: number
}

/** A whole text; or pieces of a streamed text, each after the promise before it. */
export type Answer = string | object | AsyncIterable<string>
type Script = (call: Call) => Answer | Promise<Answer>

export interface Model {
  base: string
  /** Replaces the script, and forgets the calls. */
  script(answer: Script): void
  calls: Call[]
  stop(): Promise<void>
}

const isStream = (answer: Answer): answer is AsyncIterable<string> => typeof answer === 'object' && Symbol.asyncIterator in answer

export async function startModel(): Promise<Model> {
  let script: Script = () => 'ok'
  const calls: Call[] = []
  const server = createServer((request, response) => void respond(request, response).catch(() => response.destroy()))

  async function respond(request: IncomingMessage, response: ServerResponse) {
    let text = ''
    for await (const piece of request) text += String(piece)
    const body = JSON.parse(text)
    const users = (body.messages as { role: string; content: unknown }[]).filter(({ role }) => role === 'user')
    const user = String(users.at(-1)?.content ?? '')
    const schema = String(body.response_format?.json_schema?.name ?? '')
    const texts = (body.messages as { content: unknown }[]).map(({ content }) => String(content))
    const call = { schema, user, texts, earlier: calls.filter((other) => other.schema === schema && other.user === user).length }
    calls.push(call)
    const answer = await script(call)
    if (!isStream(answer)) {
      const content = typeof answer === 'string' ? answer : JSON.stringify(answer)
      const choices = [{ index: 0, message: { role: 'assistant', content }, finish_reason: 'stop' }]
      response.setHeader('content-type', 'application/json')
      response.end(JSON.stringify({ object: 'chat.completion', model: 'scripted-1', choices, usage: { prompt_tokens: 11, completion_tokens: 7 } }))
      return
    }
    response.setHeader('content-type', 'text/event-stream')
    const send = (choices: object[], usage?: object) =>
      response.write(`data: ${JSON.stringify({ object: 'chat.completion.chunk', model: 'scripted-1', choices, usage })}\n\n`)
    for await (const content of answer) send([{ index: 0, delta: { content } }])
    send([{ index: 0, delta: {}, finish_reason: 'stop' }])
    send([], { prompt_tokens: 11, completion_tokens: 7 })
    response.end('data: [DONE]\n\n')
  }

  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  const { port } = server.address() as { port: number }
  return {
    base: `http://127.0.0.1:${port}/v1`,
    calls,
    script(answer) {
      script = answer
      calls.length = 0
    },
    stop: () =>
      new Promise((done) => {
        server.closeAllConnections()
        server.close(() => done())
      }),
  }
}

/** A decision with a reply. */
export const says = (text: string) => ({ reasoning: 'scripted', next_status: 'typing', action: null, response: text })

/** A decision for an action. */
export const acts = (type: 'SKILL' | 'TOOL' | 'FLOW' | 'SYSTEM', target: string, params: object = {}) => ({
  reasoning: 'scripted',
  next_status: 'processing',
  action: { type, target, params },
  response: null,
})

/** The first answer of a session: the plan of its agent, and a decision. */
export const plan = (decision: object, greeting: string | null = null) => ({
  plan: { name: 'Ada', tone: 'calm', greeting, sop: '1. answer', timers: [], constraints: 'short' },
  decision,
})

/** A gate that lets one piece pass for each `open()`, and everything after `openAll()`. */
export class Gate {
  private permits = 0
  private waiting: (() => void)[] = []
  private all = false

  async pass(): Promise<void> {
    if (this.all) return
    if (this.permits > 0) this.permits--
    else await new Promise<void>((done) => this.waiting.push(done))
  }

  open(count = 1): void {
    for (let index = 0; index < count; index++) {
      const next = this.waiting.shift()
      if (next) next()
      else this.permits++
    }
  }

  openAll(): void {
    this.all = true
    for (const next of this.waiting.splice(0)) next()
  }
}

/** A streamed text, each piece of which waits at the gate. */
export async function* streamed(pieces: readonly string[], gate: Gate): AsyncIterable<string> {
  for (const piece of pieces) {
    await gate.pass()
    yield piece
  }
}
