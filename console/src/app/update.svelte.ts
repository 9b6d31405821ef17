// Whether the gateway serves another console than this one, after an update. The files have fixed names, so parts of two
// versions must not meet.

class Update {
  available = $state(false)

  /** Compares the digest of the sources. Called when the event stream is back: a restart may have been an update. */
  async look(): Promise<void> {
    if (import.meta.env.DEV || this.available) return
    try {
      const response = await fetch(`${import.meta.env.BASE_URL}manifest.json`, { cache: 'no-cache' })
      const { sources } = (await response.json()) as { sources: string }
      this.available = sources !== __SOURCES__
    } catch {
      // The next look follows with the next reconnection.
    }
  }
}

export const update = new Update()
