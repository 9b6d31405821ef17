import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'

// One file after the other: `turnwheel dev` has a fixed port, and measurements need the machine for themselves.
export default defineConfig({
  root: fileURLToPath(new URL('..', import.meta.url)),
  test: {
    include: [process.env.E2E_PICTURES ? 'e2e/pictures.ts' : 'e2e/**/*.e2e.ts'],
    environment: 'node',
    pool: 'forks',
    fileParallelism: false,
    testTimeout: 60_000,
    hookTimeout: 60_000,
    reporters: ['verbose'],
  },
})
