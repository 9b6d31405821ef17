// Child processes of the tests. Whatever happens, none survives the process of the tests.

import { spawn, type ChildProcess } from 'node:child_process'
import { createServer } from 'node:net'
import { until } from './until'

const running = new Set<ChildProcess>()
process.on('exit', () => {
  for (const child of running) child.kill('SIGKILL')
})

export interface Start {
  cwd?: string
  env?: Record<string, string>
  /** The program is ready when its output matches this, or when the function returns true. */
  ready: RegExp | (() => Promise<boolean>)
}

export class Process {
  /** Everything that the program has written. */
  output = ''
  private ended = false

  private constructor(
    private readonly child: ChildProcess,
    private readonly name: string,
  ) {
    running.add(child)
    for (const stream of [child.stdout, child.stderr]) stream?.on('data', (piece: Buffer) => (this.output += piece.toString()))
    child.on('exit', () => {
      this.ended = true
      running.delete(child)
    })
  }

  static async start(command: string, args: string[], { cwd, env, ready }: Start): Promise<Process> {
    const child = spawn(command, args, { cwd, env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] })
    const started = new Process(child, [command.split('/').at(-1), ...args].join(' '))
    child.on('error', (error) => {
      started.output += error.message
      started.ended = true
    })
    await until(`${started.name} is ready`, async () => {
      if (started.ended) throw new Error(`${started.name} has ended:\n${started.output.slice(-2000)}`)
      return ready instanceof RegExp ? ready.test(started.output) : ready()
    })
    return started
  }

  get pid(): number {
    return this.child.pid!
  }

  /** Without a signal the process is killed, as by a crash. */
  async kill(signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    this.child.kill(signal)
    await until(`${this.name} has ended`, async () => this.ended)
  }
}

/** Runs a program to its end and returns its output. */
export async function run(command: string, args: string[], options: Omit<Start, 'ready'> = {}): Promise<string> {
  const child = spawn(command, args, { cwd: options.cwd, env: { ...process.env, ...options.env }, stdio: ['ignore', 'pipe', 'pipe'] })
  running.add(child)
  let output = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (piece: Buffer) => (output += piece.toString()))
  const code = await new Promise((done) => child.on('close', done))
  running.delete(child)
  if (code !== 0) throw new Error(`${command} ${args.join(' ')} failed:\n${output}`)
  return output
}

export async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  const { port } = server.address() as { port: number }
  await new Promise((done) => server.close(done))
  return port
}
