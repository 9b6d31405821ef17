import { describe, expect, it } from 'vitest'
import { SseParser } from '$/api/sse'

const STREAM = 'event: open\ndata: {"as_of":4}\n\n: comment\n\nid: 5\nevent: reply\ndata: {"a":\ndata: 1}\n\nid: 6\r\nevent: status\r\ndata: {}\r\n\r\n'
const FRAMES = [
  { id: null, event: 'open', data: '{"as_of":4}' },
  { id: '5', event: 'reply', data: '{"a":\n1}' },
  { id: '6', event: 'status', data: '{}' },
]

describe('SseParser', () => {
  it('reads frames in pieces of every size', () => {
    for (let size = 1; size <= STREAM.length; size++) {
      const parser = new SseParser()
      const frames = []
      for (let at = 0; at < STREAM.length; at += size) frames.push(...parser.push(STREAM.slice(at, at + size)))
      expect(frames).toEqual(FRAMES)
    }
  })
})
