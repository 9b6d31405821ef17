/** The keys of the rows that the user has chosen in a listing. */
export class Selection<K> {
  private keys = $state.raw<ReadonlySet<K>>(new Set())

  has(key: K): boolean {
    return this.keys.has(key)
  }

  set(key: K, on: boolean): void {
    const keys = new Set(this.keys)
    if (on) keys.add(key)
    else keys.delete(key)
    this.keys = keys
  }

  replace(keys: Iterable<K> = []): void {
    this.keys = new Set(keys)
  }
}
