import { account } from '$/api/account.svelte'
import { common } from '$/i18n'

/** Name of the user's role, for texts that say why a command is disabled. */
export const ownRole = (): string => (account.me ? common(`role.${account.me.role}`) : '')
