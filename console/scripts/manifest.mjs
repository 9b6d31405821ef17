// Compares the digest in dist/manifest.json with the sources. Exit code 1: run `npm run build`.
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { digest } from './digest.mjs'

const root = fileURLToPath(new URL('..', import.meta.url))
const built = JSON.parse(readFileSync(`${root}dist/manifest.json`, 'utf8')).sources
const current = digest(root)
if (built !== current) {
  console.error(`dist is stale: it is built from ${built}, the sources have ${current}; run \`npm run build\``)
  process.exit(1)
}
console.log(`dist is current: ${current}`)
