import { useEffect, useEffectEvent, useRef } from "react";
import styles from "./Editor.module.css";
import type { EditorHandle, EditorLanguage } from "./editor/mount";

export interface EditorDiagnostic {
  /** From 1. */
  line: number;
  message: string;
  severity: "error" | "warning";
}

export interface EditorProps {
  value: string;
  onChange: (value: string) => void;
  language: EditorLanguage | "text";
  label: string;
  readOnly?: boolean;
  /** Height in lines before it scrolls. */
  lines?: number;
  diagnostics?: readonly EditorDiagnostic[];
  /** Puts the cursor on a line (from 1) and shows it; a new object goes there again. */
  reveal?: { line: number } | null;
}

/**
 * An editor for code. It stands in a shadow root, where its styles are adopted style sheets that the page's policy
 * admits; CodeMirror is loaded when the first editor is shown. Escape, then Tab, leaves it by keyboard.
 */
export function Editor({
  value,
  onChange,
  language,
  label,
  readOnly = false,
  lines = 18,
  diagnostics,
  reveal = null,
}: EditorProps) {
  const host = useRef<HTMLDivElement>(null);
  const handle = useRef<EditorHandle | null>(null);
  const latest = useRef({ value, diagnostics });
  latest.current = { value, diagnostics };
  // What was typed and has not come back as `value` yet: it must not overwrite what is typed meanwhile.
  const told = useRef<string[]>([]);
  const changed = useEffectEvent((text: string) => {
    told.current.push(text);
    onChange(text);
  });

  useEffect(() => {
    const element = host.current;
    if (!element) return;
    let gone = false;
    void import("./editor/mount").then(async ({ mountEditor }) => {
      const root = element.shadowRoot ?? element.attachShadow({ mode: "open", delegatesFocus: true });
      const mounted = await mountEditor(root, {
        value: latest.current.value,
        language,
        label,
        readOnly,
        onChange: changed,
      });
      if (gone) mounted.destroy();
      else {
        handle.current = mounted;
        mounted.setValue(latest.current.value);
        mounted.setDiagnostics(latest.current.diagnostics ?? []);
      }
    });
    return () => {
      gone = true;
      handle.current?.destroy();
      handle.current = null;
    };
  }, [language, label, readOnly]);

  useEffect(() => {
    const at = told.current.lastIndexOf(value);
    told.current = at < 0 ? [] : told.current.slice(at + 1);
    if (at < 0) handle.current?.setValue(value);
  }, [value]);
  useEffect(() => handle.current?.setDiagnostics(diagnostics ?? []), [diagnostics]);
  useEffect(() => {
    if (reveal) handle.current?.reveal(reveal.line);
  }, [reveal]);

  return (
    <div ref={host} className={styles.editor} style={{ height: `calc(${lines} * 1.5em + var(--s4))` }} />
  );
}
