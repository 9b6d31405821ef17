// Short notes that something was done or failed. They are announced to screen readers.

import { errorText } from './error-text'

export interface Toast {
  id: number
  tone: 'good' | 'bad'
  text: string
  hint: string | null
}

class Toasts {
  list = $state<Toast[]>([])
  private next = 1

  good(text: string): void {
    this.add({ id: this.next++, tone: 'good', text, hint: null }, 4000)
  }

  bad(error: unknown): void {
    const { message, hint } = errorText(error)
    this.add({ id: this.next++, tone: 'bad', text: message, hint }, 12_000)
  }

  dismiss(id: number): void {
    this.list = this.list.filter((toast) => toast.id !== id)
  }

  private add(toast: Toast, ms: number): void {
    this.list = [...this.list.slice(-3), toast]
    setTimeout(() => this.dismiss(toast.id), ms)
  }
}

export const toasts = new Toasts()
