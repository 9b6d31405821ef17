// Copies the OpenAPI description of a running gateway to src/api/openapi.json, with sorted keys and two spaces, so that a
// change of the API is a small change of the file. Then run `npm run types`. Left out, because the console's types do not
// depend on them: examples, the error responses (all have the schema ErrorResponse), and second addresses of an operation.
//
//   npm run openapi                                  reads http://127.0.0.1:8080/openapi.json
//   TURNWHEEL_URL=http://127.0.0.1:9000 npm run openapi
import { writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const gateway = process.env.TURNWHEEL_URL ?? 'http://127.0.0.1:8080'
const headers = process.env.TURNWHEEL_TOKEN ? { authorization: `Bearer ${process.env.TURNWHEEL_TOKEN}` } : {}
const response = await fetch(`${gateway}/openapi.json`, { headers })
if (!response.ok) throw new Error(`${gateway}/openapi.json: ${response.status}`)

const LEFT_OUT = new Set(['example', 'examples'])

/** The value with sorted keys. `named`: its keys are names of the API (properties, schemas), not words of OpenAPI. */
const reduced = (value, named = false) => {
  if (Array.isArray(value)) return value.map((entry) => reduced(entry))
  if (value === null || typeof value !== 'object') return value
  const entries = Object.keys(value)
    .sort()
    .filter((key) => named || !LEFT_OUT.has(key))
    .map((key) => {
      if (!named && key === 'responses') {
        const good = Object.entries(value[key]).filter(([status]) => /^2/.test(status))
        return [key, reduced(Object.fromEntries(good), true)]
      }
      return [key, reduced(value[key], !named && (key === 'properties' || key === 'schemas' || key === 'paths'))]
    })
  return Object.fromEntries(entries)
}

const description = await response.json()
description.paths = Object.fromEntries(
  Object.entries(description.paths).filter(([path]) => !/^(\/api)?\/workflows\//.test(path)),
)
const target = fileURLToPath(new URL('../src/api/openapi.json', import.meta.url))
writeFileSync(target, `${JSON.stringify(reduced(description), null, 1)}\n`)
