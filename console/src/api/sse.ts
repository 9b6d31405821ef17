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
