import { SseParser, type Frame } from '$/live/sse'

/** The server-sent events of a response, one after the other. */
export async function* frames(response: Response): AsyncGenerator<Frame> {
  if (!response.body) return
  const parser = new SseParser()
  const decoder = new TextDecoder()
  const reader = response.body.getReader()
  try {
    for (;;) {
      const { value, done } = await reader.read()
      if (done) return
      yield* parser.push(decoder.decode(value, { stream: true }))
    }
  } finally {
    void reader.cancel().catch(() => undefined)
  }
}
