// Digest of the sources that `dist` is made from. `dist/manifest.json` holds it, so that a test in Rust finds a stale build
// without node. The files are read in the order of their paths; each adds its path, a NUL byte and its content.
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

/** Made from `src/api/openapi.json`, which counts. */
const GENERATED = 'src/api/schema.d.ts'
const SINGLE = /^(index\.html|package\.json|package-lock\.json|vite\.config\.ts|tsconfig[^/]*\.json)$/

/** Paths of all sources, relative to `root`, with `/`, sorted by their bytes. */
export function sources(root) {
  const found = readdirSync(root, { withFileTypes: true })
    .filter((entry) => entry.isFile() && SINGLE.test(entry.name))
    .map((entry) => entry.name)
  const walk = (folder) => {
    for (const entry of readdirSync(join(root, folder), { withFileTypes: true })) {
      const path = `${folder}/${entry.name}`
      if (entry.isDirectory()) walk(path)
      else if (path !== GENERATED) found.push(path)
    }
  }
  walk('src')
  return found.sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))
}

/** SHA-256 over all sources, in lower-case hex. */
export function digest(root) {
  const hash = createHash('sha256')
  for (const path of sources(root)) {
    hash.update(path)
    hash.update('\0')
    hash.update(readFileSync(join(root, path)))
  }
  return hash.digest('hex')
}
