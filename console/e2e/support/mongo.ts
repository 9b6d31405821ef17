// As much of MongoDB's wire protocol as the tests need: one command at a time, and documents of plain values. A driver would be
// one more dependency, for a replica set to begin and for data that no test could wait for otherwise.

import { connect, type Socket } from 'node:net'

/** A 64-bit integer; numbers without a fraction are 32-bit integers otherwise. */
export class Long {
  constructor(readonly value: bigint) {}
}

export type Value = string | number | boolean | null | Date | Long | Value[] | { [name: string]: Value }
export type Doc = { [name: string]: Value }

const OP_MSG = 2013

export class Mongo {
  private received = Buffer.alloc(0)
  private waiting: ((message: Buffer) => void) | null = null
  private request = 0

  private constructor(private readonly socket: Socket) {
    socket.on('data', (piece) => {
      this.received = Buffer.concat([this.received, piece as Buffer])
      if (this.received.length < 4) return
      const size = this.received.readInt32LE(0)
      if (this.received.length < size) return
      const message = this.received.subarray(0, size)
      this.received = this.received.subarray(size)
      this.waiting?.(message)
    })
  }

  static async open(port: number): Promise<Mongo> {
    const socket = connect(port, '127.0.0.1')
    await new Promise<void>((done, failed) => socket.once('connect', done).once('error', failed))
    return new Mongo(socket)
  }

  close(): void {
    this.socket.destroy()
  }

  async command(database: string, command: Doc): Promise<Doc> {
    const body = encode({ ...command, $db: database })
    const head = Buffer.alloc(21)
    head.writeInt32LE(head.length + body.length, 0)
    head.writeInt32LE(++this.request, 4)
    head.writeInt32LE(OP_MSG, 12)
    const answer = new Promise<Buffer>((done) => (this.waiting = done))
    this.socket.write(Buffer.concat([head, body]))
    const [reply] = decode(await answer, 21)
    if (reply.ok !== 1) throw new Error(`${Object.keys(command)[0]}: ${String(reply.errmsg)}`)
    return reply
  }

  async find(database: string, collection: string, filter: Doc, limit = 1000): Promise<Doc[]> {
    const reply = await this.command(database, { find: collection, filter, limit, batchSize: limit })
    return (reply.cursor as { firstBatch: Doc[] }).firstBatch
  }

  async insert(database: string, collection: string, documents: Doc[]): Promise<void> {
    for (let at = 0; at < documents.length; at += 1000) {
      await this.command(database, { insert: collection, documents: documents.slice(at, at + 1000) })
    }
  }
}

function encode(document: Doc | Value[]): Buffer {
  const parts: Buffer[] = []
  for (const [name, value] of Object.entries(document)) {
    const [type, content] = encodeValue(value as Value)
    parts.push(Buffer.from([type]), Buffer.from(`${name}\0`), content)
  }
  const content = Buffer.concat(parts)
  return Buffer.concat([int32(content.length + 5), content, Buffer.from([0])])
}

function encodeValue(value: Value): [type: number, content: Buffer] {
  if (value === null) return [0x0a, Buffer.alloc(0)]
  if (typeof value === 'string') return [0x02, Buffer.concat([int32(Buffer.byteLength(value) + 1), Buffer.from(`${value}\0`)])]
  if (typeof value === 'boolean') return [0x08, Buffer.from([value ? 1 : 0])]
  if (value instanceof Date) return [0x09, int64(BigInt(value.getTime()))]
  if (value instanceof Long) return [0x12, int64(value.value)]
  if (Array.isArray(value)) return [0x04, encode(value)]
  if (typeof value === 'object') return [0x03, encode(value)]
  if (Number.isInteger(value)) return [0x10, int32(value)]
  const content = Buffer.alloc(8)
  content.writeDoubleLE(value)
  return [0x01, content]
}

function int32(value: number): Buffer {
  const content = Buffer.alloc(4)
  content.writeInt32LE(value)
  return content
}

function int64(value: bigint): Buffer {
  const content = Buffer.alloc(8)
  content.writeBigInt64LE(value)
  return content
}

function decode(bytes: Buffer, start: number): [document: Doc, end: number] {
  const end = start + bytes.readInt32LE(start)
  const document: Doc = {}
  for (let at = start + 4; at < end - 1; ) {
    const type = bytes[at]!
    const stop = bytes.indexOf(0, at + 1)
    const name = bytes.toString('utf8', at + 1, stop)
    const [value, next] = decodeValue(bytes, stop + 1, type)
    document[name] = value
    at = next
  }
  return [document, end]
}

function decodeValue(bytes: Buffer, at: number, type: number): [value: Value, end: number] {
  switch (type) {
    case 0x01:
      return [bytes.readDoubleLE(at), at + 8]
    case 0x02: {
      const size = bytes.readInt32LE(at)
      return [bytes.toString('utf8', at + 4, at + 3 + size), at + 4 + size]
    }
    case 0x03:
      return decode(bytes, at)
    case 0x04: {
      const [items, end] = decode(bytes, at)
      return [Object.values(items), end]
    }
    case 0x08:
      return [bytes[at] === 1, at + 1]
    case 0x09:
      return [new Date(Number(bytes.readBigInt64LE(at))), at + 8]
    case 0x0a:
      return [null, at]
    case 0x10:
      return [bytes.readInt32LE(at), at + 4]
    case 0x11:
    case 0x12:
      return [new Long(bytes.readBigInt64LE(at)), at + 8]
    case 0x05: {
      const size = bytes.readInt32LE(at)
      return [bytes.toString('base64', at + 5, at + 5 + size), at + 5 + size]
    }
    case 0x07:
      return [bytes.toString('hex', at, at + 12), at + 12]
    default:
      throw new Error(`a value of the type ${type} in a document of MongoDB`)
  }
}
