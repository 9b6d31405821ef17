// Shortcuts of a page: single keys, where no field has the focus and no dialog is open.

const FIELDS = new Set(['INPUT', 'TEXTAREA', 'SELECT'])

export function shortcuts(actions: Record<string, () => unknown>): (event: KeyboardEvent) => void {
  return (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return
    const target = event.target as HTMLElement
    const typing = FIELDS.has(target.tagName) || target.isContentEditable
    if (document.querySelector('dialog[open]')) return
    if (typing) {
      // Escape leaves the field, so that the next key is a shortcut again.
      if (event.key === 'Escape') target.blur()
      return
    }
    // Enter on a button or link is theirs.
    if (event.key === 'Enter' && target.closest('a, button, summary')) return
    const action = actions[event.key]
    if (!action) return
    event.preventDefault()
    action()
  }
}
