export { default as CommandDialog } from './CommandDialog.svelte'
export { ICONS as commandIcons, type Command } from './commands'
export { t as commandText } from './messages'
