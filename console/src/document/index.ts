export { default as Diff } from './Diff.svelte'
export { default as Source } from './Source.svelte'
export { ordered, yaml } from './yaml'
