// Where the programs are: by environment variables, or where the build and the tests put them.

import { existsSync, readdirSync } from 'node:fs'
import { delimiter, join, resolve } from 'node:path'

export const ROOT = resolve(import.meta.dirname, '../../..')

function find(variable: string, places: () => string[], hint: string): string {
  const named = process.env[variable]
  const found = named ? [resolve(named)] : places()
  const path = found.find((place) => existsSync(place))
  if (!path) throw new Error(`${named ? `${variable}=${named} does not exist` : `there is no ${variable}`}: ${hint}`)
  return path
}

const onPath = (name: string) => (process.env.PATH ?? '').split(delimiter).map((folder) => join(folder, name))

/** Pinned builds that `tests/run` installs, such as `mongod-0.4.0`. */
function installed(name: string): string[] {
  const folder = join(ROOT, 'target/servers')
  const entries = existsSync(folder) ? readdirSync(folder) : []
  return entries.filter((entry) => entry.startsWith(`${name}-`)).map((entry) => join(folder, entry))
}

const SERVERS = 'run `tests/console-e2e`, which installs it, or set the variable'

export const turnwheel = () =>
  find('TURNWHEEL_BIN', () => [join(process.env.CARGO_TARGET_DIR ?? join(ROOT, 'target'), 'debug/turnwheel')], 'run `cargo build`, or set the variable')
export const natsServer = () => find('NATS_SERVER_BIN', () => [...onPath('nats-server'), ...installed('nats-server')], SERVERS)
export const mongod = () => find('MONGOD_BIN', () => [...onPath('mongod'), ...installed('mongod')], SERVERS)
export const chromium = () =>
  find('CHROMIUM', () => [...onPath('chromium'), ...onPath('chromium-browser')], "install Debian's package `chromium`, or set the variable")
