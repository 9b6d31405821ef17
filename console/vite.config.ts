import { svelte, vitePreprocess } from '@sveltejs/vite-plugin-svelte'
import { fileURLToPath } from 'node:url'
import { defineConfig, type Plugin } from 'vite'
import { digest } from './scripts/digest.mjs'

const root = fileURLToPath(new URL('.', import.meta.url))
const sources: string = digest(root)
const gateway = process.env.TURNWHEEL_URL ?? 'http://127.0.0.1:8080'

/**
 * Name of a file in `assets`, in lower case: `Runs.svelte` is `view-runs`, the folder `runs` is `runs`. Names that differ only in
 * case would be one file on some file systems.
 */
const fixed = (name: string) => name.replace(/^(?=[A-Z])/, 'view').replace(/[A-Z]+/g, (capitals) => `-${capitals.toLowerCase()}`)

// Fixed names: the gateway sends an ETag from the content, and git stores the difference of two builds.
const names = {
  entryFileNames: 'assets/[name].js',
  chunkFileNames: ({ name }: { name: string }) => `assets/${fixed(name)}.js`,
  assetFileNames: ({ names }: { names: string[] }) => `assets/${fixed(names[0] ?? '[name]').replace(/\.\w+$/, '')}[extname]`,
}

/** Writes `manifest.json` with the digest of the sources, for the test in Rust that finds a stale build. */
function manifest(): Plugin {
  return {
    name: 'turnwheel-manifest',
    apply: 'build',
    generateBundle() {
      this.emitFile({ type: 'asset', fileName: 'manifest.json', source: `${JSON.stringify({ sources }, null, 2)}\n` })
    },
  }
}

export default defineConfig({
  root,
  base: '/console/',
  publicDir: false,
  plugins: [svelte({ configFile: false, preprocess: vitePreprocess(), compilerOptions: { runes: true } }), manifest()],
  resolve: { alias: { $: `${root}src` } },
  define: { __SOURCES__: JSON.stringify(sources) },
  build: {
    target: 'es2022',
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    modulePreload: { polyfill: false },
    rolldownOptions: { output: names },
  },
  worker: { format: 'es', rolldownOptions: { output: names } },
  server: {
    port: 5199,
    strictPort: true,
    proxy: Object.fromEntries(['/api', '/openapi.json', '/metrics', '/healthz', '/readyz'].map((path) => [path, { target: gateway }])),
  },
})
