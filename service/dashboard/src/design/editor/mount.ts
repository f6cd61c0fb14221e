import { closeBrackets, closeBracketsKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import {
  bracketMatching,
  indentOnInput,
  type LanguageSupport,
  syntaxHighlighting,
} from "@codemirror/language";
import { type Diagnostic, lintGutter, setDiagnostics } from "@codemirror/lint";
import { highlightSelectionMatches, searchKeymap } from "@codemirror/search";
import { EditorState } from "@codemirror/state";
import {
  drawSelection,
  EditorView,
  highlightActiveLine,
  highlightSpecialChars,
  keymap,
  lineNumbers,
  showPanel,
} from "@codemirror/view";
import type { EditorDiagnostic } from "../Editor";
import { escapeOf, INVISIBLE, isInvisible } from "../escapes";
import { highlighter } from "../highlight";

export type EditorLanguage = "python" | "cpp" | "yaml" | "json" | "markdown";

export interface EditorHandle {
  setValue(text: string): void;
  setDiagnostics(found: readonly EditorDiagnostic[]): void;
  reveal(line: number): void;
  destroy(): void;
}

const LANGUAGES: Record<EditorLanguage, () => Promise<LanguageSupport>> = {
  python: async () => (await import("@codemirror/lang-python")).python(),
  cpp: async () => (await import("@codemirror/lang-cpp")).cpp(),
  yaml: async () => (await import("@codemirror/lang-yaml")).yaml(),
  json: async () => (await import("@codemirror/lang-json")).json(),
  markdown: async () => (await import("@codemirror/lang-markdown")).markdown(),
};

const THEME = EditorView.theme({
  "&": { height: "100%", color: "var(--text)", backgroundColor: "var(--surface)", fontSize: "var(--t2)" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.5", overflow: "auto" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": {
    backgroundColor: "var(--raised)",
    color: "var(--text-2)",
    borderRight: "1px solid var(--border)",
  },
  ".cm-activeLine": { backgroundColor: "color-mix(in srgb, var(--accent-soft) 45%, transparent)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    backgroundColor: "color-mix(in srgb, var(--accent) 30%, transparent)",
  },
  ".cm-panels, .cm-tooltip": {
    backgroundColor: "var(--raised)",
    color: "var(--text)",
    borderColor: "var(--border)",
    fontFamily: "var(--sans)",
  },
  // A panel that is hidden leaves no line behind.
  ".cm-panels-bottom": { borderTop: "none" },
  ".cm-panels-bottom > .cm-panel": { borderTop: "1px solid var(--border)" },
  ".cm-leave": { padding: "var(--s1) var(--s2)", fontSize: "var(--t1)", color: "var(--text-2)" },
  ".cm-textfield, .cm-button": {
    backgroundColor: "var(--surface)",
    backgroundImage: "none",
    color: "var(--text)",
    borderColor: "var(--border-strong)",
  },
  ".cm-specialChar": { color: "var(--warn)", backgroundColor: "var(--warn-soft)" },
  ...Object.fromEntries(
    ["keyword", "string", "number", "comment", "type", "name"].map((kind) => [
      `.${kind}`,
      { color: `var(--syntax-${kind})` },
    ]),
  ),
});

/** The characters that the page shows as escapes, as CodeMirror looks for them. */
const SPECIAL = new RegExp(INVISIBLE.source, "gu");

/** Says how the keyboard leaves an editor in which Tab indents: in view while it has the focus, and as its description. */
const leaveHint = [
  showPanel.of(() => {
    const dom = document.createElement("div");
    // An id counts within the editor's own shadow root.
    dom.id = "leave";
    dom.className = "cm-leave";
    dom.textContent = "Tab indents; Escape, then Tab leaves the editor";
    dom.hidden = true;
    return {
      dom,
      update: ({ view }) => {
        dom.hidden = !view.hasFocus;
      },
    };
  }),
  EditorView.contentAttributes.of({ "aria-describedby": "leave" }),
];

interface MountOptions {
  value: string;
  language: EditorLanguage | "text";
  label: string;
  readOnly: boolean;
  onChange: (text: string) => void;
}

export async function mountEditor(root: ShadowRoot, options: MountOptions): Promise<EditorHandle> {
  const language = options.language === "text" ? [] : [await LANGUAGES[options.language]()];
  let quiet = false;
  const view = new EditorView({
    root,
    parent: root,
    state: EditorState.create({
      doc: options.value,
      extensions: [
        lineNumbers(),
        lintGutter(),
        highlightSpecialChars({
          specialChars: SPECIAL,
          addSpecialChars: null,
          render: (code) => {
            const mark = document.createElement("span");
            const character = String.fromCodePoint(code);
            mark.className = "cm-specialChar";
            mark.textContent = isInvisible(character) ? escapeOf(character) : character;
            return mark;
          },
        }),
        history(),
        drawSelection(),
        indentOnInput(),
        bracketMatching(),
        closeBrackets(),
        highlightActiveLine(),
        highlightSelectionMatches(),
        syntaxHighlighting(highlighter),
        keymap.of([
          ...closeBracketsKeymap,
          ...defaultKeymap,
          ...searchKeymap,
          ...historyKeymap,
          indentWithTab,
        ]),
        EditorState.readOnly.of(options.readOnly),
        // Where nothing can be typed, Tab leaves.
        options.readOnly ? [] : leaveHint,
        EditorView.lineWrapping,
        EditorView.contentAttributes.of({ "aria-label": options.label }),
        EditorView.updateListener.of((update) => {
          if (update.docChanged && !quiet) options.onChange(update.state.doc.toString());
        }),
        THEME,
        language,
      ],
    }),
  });
  return {
    setValue(text) {
      const found = view.state.doc.toString();
      if (found === text) return;
      quiet = true;
      view.dispatch({ changes: { from: 0, to: found.length, insert: text } });
      quiet = false;
    },
    setDiagnostics(found) {
      const { doc } = view.state;
      const diagnostics = found.map((one): Diagnostic => {
        const line = doc.line(Math.min(Math.max(1, one.line), doc.lines));
        return { from: line.from, to: line.to, severity: one.severity, message: one.message };
      });
      view.dispatch(setDiagnostics(view.state, diagnostics));
    },
    reveal(number) {
      const line = view.state.doc.line(Math.min(Math.max(1, number), view.state.doc.lines));
      view.dispatch({
        selection: { anchor: line.from },
        effects: EditorView.scrollIntoView(line.from, { y: "center" }),
      });
      view.focus();
    },
    destroy: () => view.destroy(),
  };
}
