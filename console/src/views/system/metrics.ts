// Reads the text that Prometheus reads.

export interface Sample {
  name: string
  labels: Record<string, string>
  value: number
}

export function parse(text: string): Sample[] {
  const samples: Sample[] = []
  for (const line of text.split('\n')) {
    if (line === '' || line.startsWith('#')) continue
    const match = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line)
    if (!match) continue
    const labels: Record<string, string> = {}
    for (const [, name, value] of (match[2] ?? '').matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) {
      labels[name!] = value!.replace(/\\(.)/g, (_, char: string) => (char === 'n' ? '\n' : char))
    }
    samples.push({ name: match[1]!, labels, value: match[3] === '+Inf' ? Infinity : Number(match[3]) })
  }
  return samples
}

export class Metrics {
  private readonly byName = new Map<string, Sample[]>()

  constructor(
    text: string,
    readonly at: number,
  ) {
    for (const sample of parse(text)) {
      const list = this.byName.get(sample.name)
      if (list) list.push(sample)
      else this.byName.set(sample.name, [sample])
    }
  }

  all(name: string): readonly Sample[] {
    return this.byName.get(name) ?? []
  }

  /** A gauge; null if the process does not report it now. */
  gauge(name: string): number | null {
    return this.all(name)[0]?.value ?? null
  }

  /** Sum over all labels that are not given. */
  sum(name: string, labels: Record<string, string> = {}): number {
    return this.all(name)
      .filter((sample) => Object.entries(labels).every(([key, value]) => sample.labels[key] === value))
      .reduce((sum, { value }) => sum + value, 0)
  }

  /** Values by one label, the largest first. */
  by(name: string, label: string): [string, number][] {
    const sums = new Map<string, number>()
    for (const sample of this.all(name)) sums.set(sample.labels[label] ?? '', (sums.get(sample.labels[label] ?? '') ?? 0) + sample.value)
    return [...sums].sort((a, b) => b[1] - a[1])
  }

  /** Quantile of a histogram, interpolated within its bucket; null without observations. */
  quantile(name: string, q: number): number | null {
    const buckets = new Map<number, number>()
    for (const { labels, value } of this.all(`${name}_bucket`)) {
      const le = labels.le === '+Inf' ? Infinity : Number(labels.le)
      buckets.set(le, (buckets.get(le) ?? 0) + value)
    }
    const sorted = [...buckets].sort((a, b) => a[0] - b[0])
    const total = sorted.at(-1)?.[1] ?? 0
    if (total === 0) return null
    const wanted = q * total
    let [below, before] = [0, 0]
    for (const [le, count] of sorted) {
      if (count >= wanted) return le === Infinity ? below : below + ((le - below) * (wanted - before)) / Math.max(1, count - before)
      ;[below, before] = [le, count]
    }
    return below
  }
}
