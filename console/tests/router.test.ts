import { describe, expect, it } from 'vitest'
import { address, decodeSegment, encodeSegment, match } from '$/router/paths'

describe('addresses', () => {
  it('bring back every id', () => {
    for (const id of ['s1', '1699999999.000100', 'a~b', '~2E', '%2E', 'wamid.HBg==', '会话 1', 'a?b#c&d', '..', "'\"<"]) {
      const segment = encodeSegment(id)
      expect(segment).not.toMatch(/[./?#]/)
      expect(decodeSegment(segment)).toBe(id)
      expect(decodeSegment(new URL(`http://x/${segment}`).pathname.slice(1))).toBe(id)
    }
  })

  it('match a pattern with values', () => {
    const path = address('/sessions/:session_id/turns/:turn_id', { session_id: 's/1', turn_id: 'm.1' }).slice('/console'.length)
    expect(match('/sessions/:session_id/turns/:turn_id', path)).toEqual({ session_id: 's/1', turn_id: 'm.1' })
    expect(match('/sessions/:session_id', path)).toBeNull()
    expect(match('/sessions/:session_id', '/sessions/')).toBeNull()
    expect(match('/sessions/:session_id', '/sessions/%E0%A4%A')).toBeNull()
  })

  it('leave empty values out of the query', () => {
    expect(address('/sessions', {}, { status: 'ready', agent_id: '', channel: undefined })).toBe('/console/sessions?status=ready')
  })
})
