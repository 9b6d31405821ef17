// The shared worker: one event stream for all tabs of the browser.

import { Hub } from './hub'
import type { FromTab, Port, ToTab } from './protocol'
import { Reader } from './reader'

declare const self: { onconnect: ((event: MessageEvent) => void) | null }

const hub = new Hub({ retry: () => reader.retry(), reset: () => reader.reset() })
const reader = new Reader(
  { state: (state) => hub.setState(state), events: (events) => hub.push(events), gap: (_, to) => hub.gap(to) },
  { address: '/api/v1/events' },
)
let running = false

self.onconnect = (event) => {
  const channel = event.ports[0]!
  const port: Port = { send: (message: ToTab) => channel.postMessage(message) }
  channel.onmessage = (received: MessageEvent<FromTab>) => hub.receive(port, received.data)
  hub.connect(port)
  if (!running) {
    running = true
    void reader.run()
  }
}
