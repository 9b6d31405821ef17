// Light, dark, or as the system has it.

export type ThemeChoice = 'system' | 'light' | 'dark'
export const THEMES: readonly ThemeChoice[] = ['system', 'light', 'dark']
const KEY = 'turnwheel.theme'

class Theme {
  choice = $state<ThemeChoice>('system')
  private readonly system = matchMedia('(prefers-color-scheme: dark)')

  start(): void {
    const stored = localStorage.getItem(KEY)
    if (stored === 'light' || stored === 'dark') this.choice = stored
    this.system.addEventListener('change', () => this.apply())
    this.apply()
  }

  set(choice: ThemeChoice): void {
    this.choice = choice
    if (choice === 'system') localStorage.removeItem(KEY)
    else localStorage.setItem(KEY, choice)
    this.apply()
  }

  private apply(): void {
    const dark = this.choice === 'dark' || (this.choice === 'system' && this.system.matches)
    document.documentElement.dataset.theme = dark ? 'dark' : 'light'
  }
}

export const theme = new Theme()
