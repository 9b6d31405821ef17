export * from './api'
export { concerns, waiting } from './waiting.svelte'
export { isMuted, ring, setMuted } from './sound'
