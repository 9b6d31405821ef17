// Waiting for conditions.

export const DEADLINE = 20_000

/** Waits until the function returns something that counts as true, and returns it. Errors of the function are final. */
export async function until<T>(what: string, condition: () => Promise<T>, deadline = DEADLINE): Promise<NonNullable<T>> {
  const end = Date.now() + deadline
  for (;;) {
    const value = await condition()
    if (value) return value
    if (Date.now() > end) throw new Error(`not within ${deadline / 1000} s: ${what}`)
    await new Promise((done) => setTimeout(done, 25))
  }
}
