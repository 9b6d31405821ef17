// Installations of Turnwheel for the tests: `turnwheel dev`, or a cluster with servers of its own.

import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Api } from './api'
import { Mongo } from './mongo'
import { freePort, Process } from './processes'
import { mongod, natsServer, ROOT, turnwheel } from './programs'
import { until } from './until'

/** Roles of the tokens of an installation with `tokens`. The token of a role is `<role>-token-of-the-tests`. */
export const ROLES = ['channel', 'author', 'viewer', 'agent', 'operator', 'admin'] as const
export type Role = (typeof ROLES)[number]
export const tokenOf = (role: Role) => `${role}-token-of-the-tests`

export interface Options {
  /** Base address of the scripted model: it becomes the model `scripted`. */
  model?: string
  /** A token for each role; otherwise the gateway needs none. */
  tokens?: boolean
  /** Further settings, as TOML. Tables come last. */
  settings?: string
  /** The sample agents are files in the folder, as in a clone of the project. Only of `dev`. */
  files?: boolean
  env?: Record<string, string>
}

export interface System {
  /** Address of the first gateway. */
  base: string
  /** With the rights of an administrator. */
  api: Api
  stop(): Promise<void>
}

function settingsOf(options: Options, top: string): string {
  const access = options.tokens ? ROLES.map((role) => `[[gateway.access]]\nname = "${role}"\nrole = "${role}"\ntoken_env = "TOKEN_${role.toUpperCase()}"\n`) : []
  const scripted = options.model ? `[models.scripted]\nprovider = "openai"\nbase_url = "${options.model}"\nmodel = "scripted"\nmax_retries = 1\n` : ''
  return [top, options.settings ?? '', scripted, '[http]\nallow_private = ["*"]', ...access].join('\n')
}

function environmentOf(options: Options): Record<string, string> {
  const tokens = options.tokens ? Object.fromEntries(ROLES.map((role) => [`TOKEN_${role.toUpperCase()}`, tokenOf(role)])) : {}
  // The environment of the tests may have settings of another system.
  return { TURNWHEEL_CONFIG: '', NATS_URL: '', MONGODB_URI: '', ...tokens, ...options.env }
}

/** An empty folder, which does not outlive the process of the tests. */
function scratch(): string {
  const folder = mkdtempSync(join(tmpdir(), 'turnwheel-e2e-'))
  process.on('exit', () => rmSync(folder, { recursive: true, force: true }))
  return folder
}

const isReady = (base: string) => async () => fetch(`${base}/readyz`).then((response) => response.ok, () => false)

const apiOf = (base: string, options: Options) => new Api(base, options.tokens ? tokenOf('admin') : undefined)

export interface Dev extends System {
  folder: string
  /** Kills it, as by a crash. */
  kill(): Promise<void>
  /** Starts it again. */
  start(): Promise<void>
}

/** `turnwheel dev` in an empty folder, with the sample agents and workflows. Its demo API has a fixed port: one at a time. */
export async function startDev(options: Options = {}): Promise<Dev> {
  const folder = scratch()
  const port = await freePort()
  const base = `http://127.0.0.1:${port}`
  writeFileSync(join(folder, 'turnwheel.toml'), settingsOf(options, `[gateway]\nlisten = "127.0.0.1:${port}"`))
  const start = { cwd: folder, env: environmentOf(options), ready: isReady(base) }
  if (options.files) cpSync(join(ROOT, 'agents'), join(folder, 'agents'), { recursive: true })
  const run = () => Process.start(turnwheel(), ['--config', 'turnwheel.toml', 'dev'], start)
  let program = await run()
  return {
    base,
    folder,
    api: apiOf(base, options),
    kill: () => program.kill(),
    async start() {
      program = await run()
    },
    async stop() {
      await program.kill()
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

export class Cluster implements System {
  private readonly processes: Process[] = []
  readonly workers: Process[] = []
  private readonly ports: number[] = []
  readonly gateways: (Process | null)[] = []

  private constructor(
    private readonly folder: string,
    private readonly options: Options,
    readonly natsPort: number,
    readonly mongoPort: number,
  ) {}

  static async start(options: Options & { gateways?: number; workers?: number } = {}): Promise<Cluster> {
    const folder = scratch()
    const cluster = new Cluster(folder, options, await freePort(), await freePort())
    await Promise.all([cluster.startNats(), cluster.startMongo()])
    for (let index = 0; index < (options.gateways ?? 1); index++) {
      cluster.ports.push(await freePort())
      cluster.gateways.push(null)
      await cluster.startGateway(index)
    }
    for (let index = 0; index < (options.workers ?? 1); index++) await cluster.startWorker()
    cluster.processes.push(await cluster.run(['scheduler'], /scheduler/))
    return cluster
  }

  private async startNats(): Promise<void> {
    const args = ['-js', '-sd', join(this.folder, 'nats'), '-a', '127.0.0.1', '-p', String(this.natsPort)]
    this.processes.push(await Process.start(natsServer(), args, { ready: /Server is ready/ }))
  }

  private async startMongo(): Promise<void> {
    const data = mkdtempSync(join(this.folder, 'mongo-'))
    const args = ['--replSet', 'rs0', '--dbpath', data, '--port', String(this.mongoPort), '--bind_ip', '127.0.0.1', '--nounixsocket', '--wiredTigerCacheSizeGB', '0.5']
    this.processes.push(await Process.start(mongod(), args, { ready: /Waiting for connections/ }))
    const client = await Mongo.open(this.mongoPort)
    await client.command('admin', { replSetInitiate: { _id: 'rs0', members: [{ _id: 0, host: `127.0.0.1:${this.mongoPort}` }] } })
    await until('MongoDB has a primary', async () => (await client.command('admin', { hello: 1 })).isWritablePrimary === true)
    client.close()
  }

  private run(command: string[], ready: RegExp | (() => Promise<boolean>), listen?: number): Promise<Process> {
    const file = join(this.folder, `settings-${command[0]}-${listen ?? 0}.toml`)
    const servers = `[nats]\nurl = "nats://127.0.0.1:${this.natsPort}"\n[mongodb]\nuri = "mongodb://127.0.0.1:${this.mongoPort}/?directConnection=true"\n`
    writeFileSync(file, settingsOf(this.options, `${listen ? `[gateway]\nlisten = "127.0.0.1:${listen}"\n` : ''}${servers}`))
    return Process.start(turnwheel(), ['--config', file, ...command], { cwd: ROOT, env: environmentOf(this.options), ready })
  }

  baseOf(gateway: number): string {
    return `http://127.0.0.1:${this.ports[gateway]}`
  }

  get base(): string {
    return this.baseOf(0)
  }

  get api(): Api {
    return apiOf(this.base, this.options)
  }

  async startGateway(index: number): Promise<void> {
    this.gateways[index] = await this.run(['gateway'], isReady(this.baseOf(index)), this.ports[index])
  }

  async killGateway(index: number): Promise<void> {
    await this.gateways[index]?.kill()
    this.gateways[index] = null
  }

  async startWorker(): Promise<Process> {
    const worker = await this.run(['worker'], /worker/)
    this.workers.push(worker)
    return worker
  }

  mongo(): Promise<Mongo> {
    return Mongo.open(this.mongoPort)
  }

  async stop(): Promise<void> {
    const programs = [...this.workers, ...this.gateways.filter((gateway) => gateway !== null), ...this.processes]
    await Promise.all(programs.map((program) => program.kill()))
    rmSync(this.folder, { recursive: true, force: true })
  }
}
