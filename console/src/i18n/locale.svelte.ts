// The language and what depends on it: plural rules, numbers, times.

export type Language = 'en' | 'zh'
export const LANGUAGES: readonly Language[] = ['en', 'zh']
const KEY = 'turnwheel.language'

function initial(): Language {
  const stored = typeof localStorage === 'undefined' ? null : localStorage.getItem(KEY)
  if (stored === 'en' || stored === 'zh') return stored
  const wanted = typeof navigator === 'undefined' ? '' : navigator.language
  return wanted.toLowerCase().startsWith('zh') ? 'zh' : 'en'
}

class Locale {
  language = $state<Language>(initial())

  /** Tag for `Intl`. The region comes from the browser if it has the same language, so that dates look as the user expects. */
  get tag(): string {
    const browser = typeof navigator === 'undefined' ? '' : navigator.language
    if (browser.toLowerCase().startsWith(this.language)) return browser
    return this.language === 'zh' ? 'zh-CN' : 'en-GB'
  }

  set(language: Language): void {
    this.language = language
    localStorage.setItem(KEY, language)
    this.apply()
  }

  /** Tells the document its language: screen readers and fonts depend on it. */
  apply(): void {
    document.documentElement.lang = this.language === 'zh' ? 'zh-CN' : 'en'
  }
}

export const locale = new Locale()
