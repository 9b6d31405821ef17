export function sources(root: string): string[]
export function digest(root: string): string
