// The structure of a workflow, as `GET /workflows/{id}/structure` returns it.

import { ApiError, get } from '$/api'

export interface StageShape {
  id: string
  runnable: string | Structure
  runnable_kind?: string
  input?: string | null
  condition?: string | null
}

export interface NodeShape {
  node_id: string
  type: string
  name?: string
  config?: Record<string, unknown>
  levels?: string[][]
}

export interface EdgeShape {
  source: string
  target: string
  condition?: string | null
}

export interface InputShape {
  name: string
  type?: string
  required?: boolean
  description?: string
  default?: unknown
}

export interface Structure {
  id: string
  type: string
  name?: string
  description?: string
  stages?: StageShape[]
  branches?: StageShape[]
  routes?: { condition: string; stage: StageShape }[]
  default?: StageShape | null
  condition?: string
  max_iterations?: number
  max_concurrency?: number | null
  agents?: { name: string; runnable: string; description?: string }[]
  nodes?: NodeShape[]
  edges?: EdgeShape[]
  levels?: string[][]
  global_config?: { inputs?: InputShape[] }
}

export type Structures = ReadonlyMap<string, Structure>

/** Named workflows that are loaded for one run. Deeper ones are shown from the run's record alone. */
const MOST = 24

export async function loadStructure(workflow_id: string, signal?: AbortSignal): Promise<Structure | null> {
  try {
    return (await get('/api/v1/workflows/{workflow_id}/structure', { path: { workflow_id }, signal })) as Structure
  } catch (error) {
    // A task agent may be run by itself, and a workflow may have been deleted since.
    if (error instanceof ApiError && (error.status === 404 || error.status === 403)) return null
    throw error
  }
}

/** The structure of a workflow and of all workflows that its stages name. */
export async function loadStructures(workflow_id: string, signal?: AbortSignal): Promise<Structures> {
  const found = new Map<string, Structure>()
  const seen = new Set([workflow_id])
  let wanted = [workflow_id]
  while (wanted.length > 0 && seen.size <= MOST) {
    const loaded = await Promise.all(wanted.map((id) => loadStructure(id, signal)))
    wanted = []
    for (const structure of loaded) {
      if (!structure) continue
      found.set(structure.id, structure)
      for (const id of namedIn(structure)) {
        if (!seen.has(id)) {
          seen.add(id)
          wanted.push(id)
        }
      }
    }
  }
  return found
}

export function stagesOf(structure: Structure): StageShape[] {
  const routes = (structure.routes ?? []).map((route) => route.stage)
  return [...(structure.stages ?? []), ...(structure.branches ?? []), ...routes, ...(structure.default ? [structure.default] : [])]
}

function namedIn(structure: Structure): string[] {
  return stagesOf(structure).flatMap((stage) => {
    if (typeof stage.runnable !== 'string') return namedIn(stage.runnable)
    return stage.runnable_kind === 'workflow' ? [stage.runnable] : []
  })
}
