// As much of the protocol of NATS as it takes to publish events at a steady rate.

import { connect, type Socket } from 'node:net'

export class Publisher {
  private constructor(private readonly socket: Socket) {
    socket.on('data', (text: string) => {
      if (text.includes('PING')) socket.write('PONG\r\n')
    })
    socket.setEncoding('utf8')
  }

  static async open(port: number): Promise<Publisher> {
    const socket = connect(port, '127.0.0.1')
    await new Promise<void>((done, failed) => socket.once('connect', done).once('error', failed))
    socket.write('CONNECT {"verbose":false,"pedantic":false}\r\n')
    return new Publisher(socket)
  }

  publish(subject: string, payload: object): void {
    const text = JSON.stringify(payload)
    this.socket.write(`PUB ${subject} ${Buffer.byteLength(text)}\r\n${text}\r\n`)
  }

  close(): void {
    this.socket.end()
  }
}
