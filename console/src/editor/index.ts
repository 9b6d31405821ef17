export { default as CodeEditor } from './CodeEditor.svelte'
export type { Mark } from './editor'
