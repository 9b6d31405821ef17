// Reads server-sent events from the body of a response. (EventSource shows neither the status of a response nor comments.)

export interface Frame {
  id: string | null
  event: string
  data: string
}

/** Takes text in pieces of any size and returns the frames that they complete. Comments are dropped. */
export class SseParser {
  private rest = ''
  private id: string | null = null
  private event = ''
  private data: string[] = []

  push(text: string): Frame[] {
    const frames: Frame[] = []
    const lines = (this.rest + text).split('\n')
    this.rest = lines.pop() ?? ''
    for (const raw of lines) {
      const line = raw.endsWith('\r') ? raw.slice(0, -1) : raw
      if (line === '') {
        if (this.data.length > 0) frames.push({ id: this.id, event: this.event || 'message', data: this.data.join('\n') })
        this.event = ''
        this.data = []
      } else if (!line.startsWith(':')) this.field(line)
    }
    return frames
  }

  private field(line: string): void {
    const colon = line.indexOf(':')
    const name = colon < 0 ? line : line.slice(0, colon)
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '')
    if (name === 'data') this.data.push(value)
    else if (name === 'event') this.event = value
    else if (name === 'id') this.id = value
  }
}

/** The frames of a body, those of each piece together. `alive` is called for each piece, also if it has only comments. */
export async function* batches(body: ReadableStream<Uint8Array>, alive: () => void = () => {}): AsyncGenerator<Frame[]> {
  const parser = new SseParser()
  const decoder = new TextDecoder()
  const reader = body.getReader()
  try {
    for (;;) {
      const { value, done } = await reader.read()
      if (done) return
      alive()
      yield parser.push(decoder.decode(value, { stream: true }))
    }
  } finally {
    // The caller may stop before the end of the body: then the connection is closed.
    void reader.cancel().catch(() => undefined)
  }
}

/** The server-sent events of a response, one after the other. */
export async function* frames(response: Response): AsyncGenerator<Frame> {
  if (response.body) for await (const batch of batches(response.body)) yield* batch
}
