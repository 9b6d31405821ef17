import { untrack } from 'svelte'
import { SessionView } from './session.svelte'

/** A session that is followed as long as the component lives, and another one when the id changes. */
export function useSession(session_id: () => string | undefined, isNew: () => boolean = () => false): { readonly current: SessionView | null } {
  let current = $state.raw<SessionView | null>(null)
  $effect.pre(() => {
    const id = session_id()
    if (id === undefined) {
      current = null
      return
    }
    const view = new SessionView(id, untrack(isNew))
    current = view
    void view.start()
    return () => view.stop()
  })
  return {
    get current() {
      return current
    },
  }
}
