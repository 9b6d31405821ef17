// What most files of tests share: a browser, `turnwheel dev` and, if asked for, a scripted model. They start before the
// file's tests and end after them.

import type { Browser } from 'playwright-core'
import { afterAll, beforeAll } from 'vitest'
import { launch } from './browser'
import { startModel, type Model } from './model'
import { startDev, type Dev, type Options } from './system'

export interface Installation {
  browser: Browser
  dev: Dev
  /** Only with `scripted`. */
  model: Model
}

/** The parts are there once the tests of the file begin. */
export function installation(options: Options & { scripted?: boolean } = {}, prepare?: (on: Installation) => Promise<void>): Installation {
  const on = {} as Installation
  beforeAll(async () => {
    const { scripted, ...settings } = options
    if (scripted) on.model = await startModel()
    ;[on.browser, on.dev] = await Promise.all([launch(), startDev({ ...settings, model: on.model?.base })])
    await prepare?.(on)
  })
  afterAll(async () => {
    await on.browser?.close()
    await on.dev?.stop()
    await on.model?.stop()
  })
  return on
}
