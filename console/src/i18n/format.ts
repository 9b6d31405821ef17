// Numbers, times and durations in the user's locale.

import { locale } from './locale.svelte'

const formats = new Map<string, unknown>()

/** Making a format takes longer than using it a hundred times: each is made once for a locale. */
function cached<T>(name: string, make: (tag: string) => T): T {
  const key = `${locale.tag} ${name}`
  let found = formats.get(key) as T | undefined
  if (found === undefined) formats.set(key, (found = make(locale.tag)))
  return found
}

function format(name: string, options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat {
  return cached(name, (tag) => new Intl.DateTimeFormat(tag, options))
}

export function number(value: number): string {
  return cached('number', (tag) => new Intl.NumberFormat(tag)).format(value)
}

export function pluralOf(count: number): Intl.LDMLPluralRule {
  return cached('plural', (tag) => new Intl.PluralRules(tag)).select(count)
}

/** Large numbers in few characters: 12.3K, 1.2万. */
export function compact(value: number): string {
  return cached('compact', (tag) => new Intl.NumberFormat(tag, { notation: 'compact', maximumFractionDigits: 1 })).format(value)
}

export function bytes(value: number): string {
  const units = ['byte', 'kilobyte', 'megabyte', 'gigabyte']
  let unit = 0
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000
    unit++
  }
  // The short name of a byte is not a plural in English: "15 byte".
  const unitDisplay = unit === 0 ? 'long' : 'short'
  const options: Intl.NumberFormatOptions = { style: 'unit', unit: units[unit], unitDisplay, maximumFractionDigits: 1 }
  return new Intl.NumberFormat(locale.tag, options).format(value)
}

/** Day and time to the second, for people who compare with a log. */
export function dateTime(at: Date): string {
  return format('full', { dateStyle: 'medium', timeStyle: 'medium' }).format(at)
}

/** The time alone today, otherwise with the day. */
export function shortTime(at: Date, now: Date = new Date()): string {
  if (at.toDateString() === now.toDateString()) return format('time', { hour: '2-digit', minute: '2-digit', second: '2-digit' }).format(at)
  if (at.getFullYear() === now.getFullYear()) return format('day', { month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit' }).format(at)
  return format('year', { year: 'numeric', month: 'short', day: 'numeric' }).format(at)
}

/** Time with milliseconds, for traces. */
export function preciseTime(at: Date): string {
  return format('precise', { hour: '2-digit', minute: '2-digit', second: '2-digit', fractionalSecondDigits: 3 }).format(at)
}

const STEPS: [Intl.RelativeTimeFormatUnit, number][] = [
  ['second', 60],
  ['minute', 60],
  ['hour', 24],
  ['day', 365],
]

/** "3 min. ago", "in 2 hr." */
export function relative(at: Date, now: number): string {
  let amount = (at.getTime() - now) / 1000
  let unit: Intl.RelativeTimeFormatUnit = 'year'
  for (const [name, size] of STEPS) {
    if (Math.abs(amount) < size) {
      unit = name
      break
    }
    amount /= size
  }
  return cached('relative', (tag) => new Intl.RelativeTimeFormat(tag, { numeric: 'auto', style: 'short' })).format(Math.trunc(amount), unit)
}

function unit(value: number, name: string, digits: number): string {
  const options: Intl.NumberFormatOptions = { style: 'unit', unit: name, unitDisplay: 'narrow', maximumFractionDigits: digits }
  return cached(`${name} ${digits}`, (tag) => new Intl.NumberFormat(tag, options)).format(value)
}

/** A duration with at most two units: 4 ms, 1.2 s, 3m 20s, 2h 5m, 3d 4h. */
export function duration(ms: number): string {
  const value = Math.max(0, ms)
  if (value < 1000) return unit(Math.round(value), 'millisecond', 0)
  if (value < 59_950) return unit(value / 1000, 'second', value < 10_000 ? 2 : 1)
  const seconds = Math.round(value / 1000)
  const [days, hours, minutes] = [Math.floor(seconds / 86_400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60]
  const parts: [number, string][] = [
    [days, 'day'],
    [hours, 'hour'],
    [minutes, 'minute'],
    [seconds % 60, 'second'],
  ]
  const first = parts.findIndex(([count]) => count > 0)
  return parts
    .slice(first, first + 2)
    .filter(([count], index) => index === 0 || count > 0)
    .map(([count, name]) => unit(count, name, 0))
    .join(' ')
}

/** A countdown: 29:41, 1:02:09, 3d 4h. */
export function countdown(ms: number): string {
  const seconds = Math.max(0, Math.ceil(ms / 1000))
  if (seconds >= 86_400) return duration(seconds * 1000)
  const two = (value: number) => String(value).padStart(2, '0')
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60]
  return hours > 0 ? `${hours}:${two(minutes)}:${two(seconds % 60)}` : `${minutes}:${two(seconds % 60)}`
}
