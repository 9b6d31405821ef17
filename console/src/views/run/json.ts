/** The object or list that a text of a run is; null for other texts. */
export function jsonOf(text: string | null | undefined): object | null {
  if (!text || !/^\s*[[{]/.test(text)) return null
  try {
    return JSON.parse(text) as object
  } catch {
    return null
  }
}
