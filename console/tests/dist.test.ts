// The build in `dist`: it is current, small, and asks nobody else for anything.
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { digest } from '../scripts/digest.mjs'

const root = join(import.meta.dirname, '..')
const dist = join(root, 'dist')
const KB = 1000
const read = (path: string) => readFileSync(join(dist, path))
const size = (path: string) => gzipSync(read(path), { level: 6 }).length
const assets = readdirSync(join(dist, 'assets')).map((name) => `assets/${name}`)

/** Files that a file imports with `import … from`, so that the browser loads them together. */
function closure(entry: string, seen = new Set<string>()): Set<string> {
  if (seen.has(entry)) return seen
  seen.add(entry)
  const source = read(entry).toString()
  for (const [, name] of source.matchAll(/(?:from|import)\s*["']\.\/([\w.-]+\.js)["']/g)) closure(`assets/${name}`, seen)
  return seen
}

const html = read('index.html').toString()
const first = new Set(['index.html'])
for (const [, path] of html.matchAll(/(?:src|href)="\/console\/([^"]+)"/g)) {
  if (path!.endsWith('.js')) closure(path!).forEach((file) => first.add(file))
  else first.add(path!)
}

/** Libraries that load with the first editor or graph have a budget of their own. */
const LARGE = /^assets\/(editor|graph)\.(js|css)$/

describe('dist', () => {
  it('is made from these sources', () => {
    expect(JSON.parse(read('manifest.json').toString()).sources).toBe(digest(root))
  })

  it('loads first at most 75 KB', () => {
    const sizes = [...first].map((file) => [file, size(file)] as const)
    const total = sizes.reduce((sum, [, bytes]) => sum + bytes, 0)
    console.log(`first load: ${total} bytes gzip`, Object.fromEntries(sizes))
    expect(total).toBeLessThanOrEqual(75 * KB)
  })

  const entries = assets.filter((file) => file.endsWith('.js') && file.startsWith('assets/view-'))
  it.each(entries)('%s needs at most 30 KB more', (file) => {
    const files = [...closure(file)].filter((part) => !first.has(part) && !LARGE.test(part))
    const styles = files.map((part) => part.replace(/\.js$/, '.css')).filter((part) => existsSync(join(dist, part)) && !first.has(part))
    const total = [...files, ...styles].reduce((sum, part) => sum + size(part), 0)
    console.log(`${file}: ${total} bytes gzip`)
    expect(total).toBeLessThanOrEqual(30 * KB)
  })

  it.each(assets.filter((file) => LARGE.test(file)))('%s has at most 150 KB', (file) => {
    expect(size(file)).toBeLessThanOrEqual(150 * KB)
  })

  it('has names that no file system takes for one', () => {
    expect(assets.filter((file) => file !== file.toLowerCase())).toEqual([])
  })

  it('has no inline script, no inline style and no address of another origin', () => {
    expect(html).not.toMatch(/<script(?![^>]*\bsrc=)/)
    expect(html).not.toMatch(/<style|\sstyle=|\son\w+=/)
    for (const file of assets) {
      const foreign = read(file)
        .toString()
        .match(/https?:\/\/[\w.-]+/g)
        ?.filter((url) => !/^https?:\/\/(www\.w3\.org|svelte\.dev|127\.0\.0\.1)$/.test(url))
      expect(foreign ?? [], file).toEqual([])
    }
  })
})
