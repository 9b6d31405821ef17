export { address, match, type Params, type Query } from './paths'
export { router } from './router.svelte'
