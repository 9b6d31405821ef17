// How a tab reaches the reader of the event stream: a shared worker; without one, the tab that holds a lock reads for all
// others; without locks, each tab reads for itself.

import { Hub } from './hub'
import type { FromTab, Port, ToTab } from './protocol'
import { Reader } from './reader'

export interface Connection {
  send(message: FromTab): void
  /** Called with every message for this tab. */
  onmessage: (message: ToTab) => void
  /** Called when another reader has taken over: the tab follows again what it follows. */
  onreader: () => void
}

const ADDRESS = '/api/v1/events'
const NAME = 'turnwheel-live'

export function connect(): Connection {
  if (typeof SharedWorker !== 'undefined') {
    try {
      return viaWorker()
    } catch {
      // Some browsers have the class and refuse to start one, for instance in a private window.
    }
  }
  if (typeof BroadcastChannel !== 'undefined' && navigator.locks) return viaLeader()
  return alone()
}

function blank(): Connection {
  return { send: () => {}, onmessage: () => {}, onreader: () => {} }
}

function viaWorker(): Connection {
  const connection = blank()
  const worker = new SharedWorker(new URL('./worker.ts', import.meta.url), { type: 'module', name: `${NAME} ${__SOURCES__}` })
  worker.port.onmessage = (event: MessageEvent<ToTab>) => connection.onmessage(event.data)
  connection.send = (message) => worker.port.postMessage(message)
  addEventListener('pagehide', (event) => {
    if (!event.persisted) connection.send({ kind: 'bye' })
  })
  return connection
}

function startReader(hub: Hub): Reader {
  const hooks = { state: hub.setState.bind(hub), events: hub.push.bind(hub), gap: (_: number, to: number) => hub.gap(to) }
  const reader = new Reader(hooks, { address: ADDRESS })
  void reader.run()
  return reader
}

function alone(): Connection {
  const connection = blank()
  let reader: Reader | null = null
  const hub = new Hub({ retry: () => reader?.retry(), reset: () => reader?.reset() })
  const port: Port = { send: (message) => queueMicrotask(() => connection.onmessage(message)) }
  connection.send = (message) => hub.receive(port, message)
  hub.connect(port)
  reader = startReader(hub)
  return connection
}

type Note =
  | { to: 'reader'; tab: string; message: FromTab | { kind: 'hello' } }
  | { to: 'tab'; tab: string; message: ToTab }
  | { to: 'all'; kind: 'reader' }

/** The tab with the lock reads. When it closes, another one gets the lock, and the tabs turn to that one. */
export function viaLeader(): Connection {
  const connection = blank()
  const channel = new BroadcastChannel(NAME)
  const tab = crypto.randomUUID()
  let local: { hub: Hub; port: Port } | null = null

  const post = (note: Note) => channel.postMessage(note)
  connection.send = (message) => {
    if (local) local.hub.receive(local.port, message)
    else post({ to: 'reader', tab, message })
  }
  const remote = new Map<string, Port>()
  channel.onmessage = (event: MessageEvent<Note>) => {
    const note = event.data
    if (note.to === 'tab' && note.tab === tab) connection.onmessage(note.message)
    else if (note.to === 'all') {
      post({ to: 'reader', tab, message: { kind: 'hello' } })
      connection.onreader()
    } else if (note.to === 'reader' && local) {
      let port = remote.get(note.tab)
      if (!port) {
        port = { send: (message) => post({ to: 'tab', tab: note.tab, message }) }
        remote.set(note.tab, port)
        local.hub.connect(port)
      }
      if (note.message.kind === 'bye') remote.delete(note.tab)
      if (note.message.kind !== 'hello') local.hub.receive(port, note.message)
    }
  }
  addEventListener('pagehide', () => connection.send({ kind: 'bye' }))
  post({ to: 'reader', tab, message: { kind: 'hello' } })

  void navigator.locks.request(NAME, async () => {
    let reader: Reader | null = null
    const hub = new Hub({ retry: () => reader?.retry(), reset: () => reader?.reset() })
    const port: Port = { send: (message) => queueMicrotask(() => connection.onmessage(message)) }
    local = { hub, port }
    hub.connect(port)
    reader = startReader(hub)
    connection.onreader()
    post({ to: 'all', kind: 'reader' })
    // Held until the tab closes.
    await new Promise(() => {})
  })
  return connection
}
