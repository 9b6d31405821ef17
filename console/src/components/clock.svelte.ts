// The time of now as state: relative times and countdowns follow it. One timer for all of them, and none without any.

let now = $state(Date.now())
let readers = 0
let timer: ReturnType<typeof setInterval> | undefined

/** Call in a component; `now` changes once a second while a component uses it. */
export function useClock(): { readonly now: number } {
  $effect(() => {
    if (readers++ === 0) timer = setInterval(() => (now = Date.now()), 1000)
    now = Date.now()
    return () => {
      if (--readers === 0) clearInterval(timer)
    }
  })
  return {
    get now() {
      return now
    },
  }
}
