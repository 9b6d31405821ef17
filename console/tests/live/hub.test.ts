import { beforeEach, describe, expect, it, vi } from 'vitest'
import { Hub } from '$/live/hub'
import type { LiveEvent, LiveState, ToTab } from '$/live/protocol'

const event = (seq: number, session_id = 's1', type: LiveEvent['type'] = 'status'): LiveEvent => ({ seq, type, session_id, channel: 'web', event: {} })
const open = (position: number): LiveState => ({ status: 'live', since: 0, position })

class Tab {
  got: ToTab[] = []
  send(message: ToTab) {
    this.got.push(message)
  }
  seqs(id = 1) {
    return this.got.flatMap((message) => (message.kind === 'events' && message.id === id ? message.events.map(({ seq }) => seq) : []))
  }
  gaps() {
    return this.got.filter((message) => message.kind === 'gap')
  }
}

describe('Hub', () => {
  let hub: Hub
  let tab: Tab
  const reset = vi.fn()
  beforeEach(() => {
    vi.useFakeTimers()
    hub = new Hub({ retry() {}, reset }, 8)
    tab = new Tab()
    hub.connect(tab)
  })
  const push = (...seqs: number[]) => {
    hub.push(seqs.map((seq) => event(seq)))
    vi.runAllTimers()
  }

  it('continues from the position of a listing', () => {
    hub.setState(open(10))
    push(11, 12, 13)
    hub.receive(tab, { kind: 'follow', id: 1, after: 11, filter: {} })
    push(14)
    expect(tab.seqs()).toEqual([12, 13, 14])
    expect(tab.gaps()).toEqual([])
  })

  it('says gap to a tab whose listing is older than what is kept', () => {
    hub.setState(open(10))
    hub.receive(tab, { kind: 'follow', id: 1, after: 9, filter: {} })
    push(11)
    expect(tab.gaps()).toEqual([{ kind: 'gap', id: 1, to: 10 }])
    expect(tab.seqs()).toEqual([11])
    push(...Array.from({ length: 20 }, (_, index) => 12 + index))
    hub.receive(tab, { kind: 'follow', id: 2, after: 12, filter: {} })
    expect(tab.gaps()).toContainEqual({ kind: 'gap', id: 2, to: 31 })
  })

  it('forgets the events of a login that has ended', () => {
    hub.setState(open(10))
    hub.receive(tab, { kind: 'follow', id: 1, after: null, filter: {} })
    push(11)
    hub.receive(tab, { kind: 'reset' })
    expect(reset).toHaveBeenCalledOnce()
    hub.receive(tab, { kind: 'follow', id: 2, after: 10, filter: {} })
    expect(tab.seqs(2)).toEqual([])
    hub.setState(open(20))
    push(21)
    expect(tab.gaps()).toEqual([{ kind: 'gap', id: 1, to: 20 }, { kind: 'gap', id: 2, to: 20 }])
    expect(tab.seqs()).toEqual([11, 21])
  })

  it('lets a tab load again that began before the stream was open', () => {
    hub.receive(tab, { kind: 'follow', id: 1, after: null, filter: {} })
    hub.setState(open(10))
    push(11)
    expect(tab.gaps()).toHaveLength(1)
    expect(tab.seqs()).toEqual([11])
  })

  it('confirms "from now on"', () => {
    hub.setState(open(10))
    push(11)
    hub.receive(tab, { kind: 'follow', id: 1, after: null, filter: {} })
    push(12)
    expect(tab.got).toContainEqual({ kind: 'following', id: 1 })
    expect(tab.seqs()).toEqual([12])
  })

  it('sends each event once, whatever the batches', () => {
    hub.setState(open(0))
    hub.receive(tab, { kind: 'follow', id: 1, after: 0, filter: {} })
    hub.push([event(1), event(2)])
    hub.receive(tab, { kind: 'follow', id: 2, after: 0, filter: {} })
    hub.push([event(3)])
    vi.runAllTimers()
    expect(tab.seqs(1)).toEqual([1, 2, 3])
    expect(tab.seqs(2)).toEqual([1, 2, 3])
  })

  it('filters by session and type', () => {
    hub.setState(open(0))
    hub.receive(tab, { kind: 'follow', id: 1, after: 0, filter: { session_id: 's2' } })
    hub.receive(tab, { kind: 'follow', id: 2, after: 0, filter: { types: ['reply'] } })
    hub.push([event(1), event(2, 's2'), event(3, 's1', 'reply')])
    vi.runAllTimers()
    expect(tab.seqs(1)).toEqual([2])
    expect(tab.seqs(2)).toEqual([3])
  })

  it('passes a gap of the stream on to everybody', () => {
    hub.setState(open(0))
    hub.receive(tab, { kind: 'follow', id: 1, after: 0, filter: { session_id: 'other' } })
    hub.gap(50)
    expect(tab.gaps()).toEqual([{ kind: 'gap', id: 1, to: 50 }])
    push(51)
    hub.receive(tab, { kind: 'follow', id: 2, after: 40, filter: {} })
    expect(tab.gaps()).toHaveLength(2)
  })

  it('forgets a tab that leaves', () => {
    hub.setState(open(0))
    hub.receive(tab, { kind: 'follow', id: 1, after: 0, filter: {} })
    hub.receive(tab, { kind: 'bye' })
    push(1)
    expect(tab.seqs()).toEqual([])
    expect(hub.size).toBe(0)
  })
})
