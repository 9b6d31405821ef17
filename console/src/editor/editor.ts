// The text editor: CodeMirror with YAML. It is a chunk of its own, which loads with the first editor.

import { defaultKeymap, history, historyKeymap, indentWithTab } from '@codemirror/commands'
import { yaml } from '@codemirror/lang-yaml'
import { bracketMatching, foldGutter, foldKeymap, HighlightStyle, indentOnInput, indentUnit, syntaxHighlighting } from '@codemirror/language'
import { lintGutter, nextDiagnostic, setDiagnostics, type Diagnostic } from '@codemirror/lint'
import { highlightSelectionMatches, search, searchKeymap } from '@codemirror/search'
import { Compartment, EditorState, type Extension } from '@codemirror/state'
import { drawSelection, EditorView, highlightActiveLine, highlightActiveLineGutter, keymap, lineNumbers } from '@codemirror/view'
import { tags } from '@lezer/highlight'

/** A mark of the editor: `line` and `column` from 1. */
export interface Mark {
  line: number
  column?: number | null
  level: 'error' | 'warning'
  message: string
}

export interface EditorOptions {
  text: string
  label: string
  readonly: boolean
  /** Words of the search panel, by their English text. */
  phrases: Record<string, string>
  onchange: (text: string) => void
  /** Ctrl or Cmd and S. */
  onsave: () => void
}

export interface Editor {
  set(text: string): void
  mark(marks: readonly Mark[]): void
  go(line: number, column?: number | null): void
  setReadonly(readonly: boolean): void
  focus(): void
  destroy(): void
}

const colours = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: 'var(--blue)' },
  { tag: [tags.string, tags.special(tags.string)], color: 'var(--green)' },
  { tag: [tags.number, tags.bool, tags.null, tags.keyword, tags.atom], color: 'var(--violet)' },
  { tag: [tags.comment, tags.lineComment], color: 'var(--text-3)', fontStyle: 'italic' },
  { tag: [tags.labelName, tags.typeName, tags.meta], color: 'var(--teal)' },
  { tag: [tags.punctuation, tags.separator, tags.squareBracket, tags.brace], color: 'var(--text-2)' },
])

const theme = EditorView.theme({
  '&': { height: '100%', color: 'var(--text)', backgroundColor: 'var(--surface)', fontSize: 'var(--text-sm)' },
  '&.cm-focused': { outline: 'none' },
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '1.6' },
  '.cm-content': { caretColor: 'var(--text)', padding: 'var(--s2) 0' },
  '.cm-cursor': { borderLeftColor: 'var(--text)' },
  '.cm-gutters': { backgroundColor: 'var(--surface-2)', color: 'var(--text-3)', borderRight: '1px solid var(--line)' },
  '.cm-lineNumbers .cm-gutterElement': { minWidth: '2.25rem', padding: '0 var(--s1)' },
  '.cm-activeLine': { backgroundColor: 'color-mix(in srgb, var(--accent) 6%, transparent)' },
  '.cm-activeLineGutter': { backgroundColor: 'var(--surface-3)', color: 'var(--text)' },
  '&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground': {
    backgroundColor: 'color-mix(in srgb, var(--accent) 26%, transparent) !important',
  },
  '.cm-selectionMatch, .cm-searchMatch': { backgroundColor: 'var(--amber-soft)' },
  '.cm-searchMatch-selected': { outline: '1px solid var(--amber-solid)' },
  '.cm-matchingBracket': { backgroundColor: 'var(--surface-3)', color: 'inherit' },
  '.cm-foldPlaceholder': { backgroundColor: 'var(--surface-3)', border: '0', color: 'var(--text-2)', padding: '0 var(--s1)' },
  '.cm-panels': { backgroundColor: 'var(--surface-2)', color: 'var(--text)', fontFamily: 'var(--font)', borderColor: 'var(--line)' },
  '.cm-panels.cm-panels-top': { borderBottom: '1px solid var(--line)' },
  '.cm-textfield': { backgroundColor: 'var(--surface)', border: '1px solid var(--edge)', borderRadius: 'var(--radius-sm)', color: 'var(--text)' },
  '.cm-button': { backgroundImage: 'none', backgroundColor: 'var(--surface)', border: '1px solid var(--line-strong)', borderRadius: 'var(--radius-sm)', color: 'var(--text)' },
  '.cm-panel.cm-search': { padding: 'var(--s2) var(--s6) var(--s2) var(--s3)' },
  '.cm-panel.cm-search input, .cm-panel.cm-search button, .cm-panel.cm-search label': { margin: '0.125rem var(--s2) 0.125rem 0', fontSize: 'var(--text-xs)' },
  '.cm-panel.cm-search .cm-textfield, .cm-panel.cm-search .cm-button': { minHeight: '1.625rem', padding: '0 var(--s2)', fontFamily: 'inherit', verticalAlign: 'middle' },
  '.cm-panel :focus-visible': { outline: '2px solid var(--focus)', outlineOffset: '1px' },
  '.cm-panel.cm-search [type=checkbox]': { verticalAlign: 'middle', accentColor: 'var(--accent)' },
  '.cm-panel.cm-search [name=close]': { color: 'var(--text-2)', fontSize: '1rem' },
  '.cm-tooltip': { backgroundColor: 'var(--surface)', border: '1px solid var(--line-strong)', borderRadius: 'var(--radius)', boxShadow: 'var(--shadow-2)', maxWidth: '36rem' },
  '.cm-diagnostic': { padding: 'var(--s1) var(--s2)', fontFamily: 'var(--font)', fontSize: 'var(--text-xs)', whiteSpace: 'pre-wrap' },
  '.cm-diagnostic-error': { borderLeftColor: 'var(--red-solid)' },
  '.cm-diagnostic-warning': { borderLeftColor: 'var(--amber-solid)' },
  '.cm-lintRange-error': { backgroundImage: 'none', textDecoration: 'underline wavy var(--red-solid)', textUnderlineOffset: '3px' },
  '.cm-lintRange-warning': { backgroundImage: 'none', textDecoration: 'underline wavy var(--amber-solid)', textUnderlineOffset: '3px' },
  '.cm-lint-marker': { width: '0.5rem', height: '0.5rem', margin: '0.375rem auto 0', borderRadius: '50%' },
  '.cm-gutter-lint': { width: '0.875rem' },
  '.cm-lint-marker-error': { content: 'none', backgroundColor: 'var(--red-solid)' },
  '.cm-lint-marker-warning': { content: 'none', backgroundColor: 'var(--amber-solid)', borderRadius: '1px' },
})

const fixed = (readonly: boolean): Extension => [EditorState.readOnly.of(readonly), EditorView.editable.of(!readonly)]

/**
 * Makes an editor in `host`. It lives in a shadow tree: there CodeMirror uses style sheets made by script, which the content
 * security policy allows. In the document it would add `<style>` elements, which the policy forbids.
 */
export function create(host: HTMLElement, options: EditorOptions): Editor {
  const root = host.shadowRoot ?? host.attachShadow({ mode: 'open' })
  const readonly = new Compartment()
  let silent = false
  const view = new EditorView({
    root,
    parent: root,
    state: EditorState.create({
      doc: options.text,
      extensions: [
        readonly.of(fixed(options.readonly)),
        EditorState.phrases.of(options.phrases),
        EditorState.tabSize.of(2),
        indentUnit.of('  '),
        keymap.of([
          { key: 'Mod-s', run: () => (options.onsave(), true) },
          { key: 'F8', run: nextDiagnostic },
          ...searchKeymap,
          ...foldKeymap,
          ...historyKeymap,
          ...defaultKeymap,
          indentWithTab,
        ]),
        lineNumbers(),
        lintGutter(),
        foldGutter(),
        history(),
        drawSelection(),
        indentOnInput(),
        bracketMatching(),
        highlightActiveLine(),
        highlightActiveLineGutter(),
        highlightSelectionMatches(),
        search({ top: true }),
        EditorView.lineWrapping,
        EditorView.contentAttributes.of({ 'aria-label': options.label, spellcheck: 'false', tabindex: '0' }),
        EditorView.updateListener.of((update) => {
          if (update.docChanged && !silent) options.onchange(update.state.doc.toString())
        }),
        yaml(),
        syntaxHighlighting(colours),
        theme,
      ],
    }),
  })

  const place = (line: number, column?: number | null) => {
    const at = view.state.doc.line(Math.max(1, Math.min(view.state.doc.lines, line)))
    const start = column ? Math.min(at.from + column - 1, at.to) : at.from + /^[\s-]*/.exec(at.text)![0].length
    return { from: Math.min(start, at.to), to: at.to }
  }
  return {
    set(text) {
      if (text === view.state.doc.toString()) return
      silent = true
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } })
      silent = false
    },
    mark(marks) {
      const diagnostics = marks.map(({ line, column, level, message }): Diagnostic => ({ ...place(line, column), severity: level, message }))
      view.dispatch(setDiagnostics(view.state, diagnostics))
    },
    go(line, column) {
      const { from } = place(line, column)
      view.dispatch({ selection: { anchor: from }, effects: EditorView.scrollIntoView(from, { y: 'center' }) })
      view.focus()
    },
    setReadonly: (value) => view.dispatch({ effects: readonly.reconfigure(fixed(value)) }),
    focus: () => view.focus(),
    destroy: () => view.destroy(),
  }
}
