import { type DragEvent, useMemo, useState } from "react";
import type { Schemas } from "../../api/client";
import { useExamples } from "../../api/queries";
import {
  Card,
  Editor,
  type EditorDiagnostic,
  FileButton,
  Select,
  Untrusted,
  useToast,
  visible,
} from "../../design";
import styles from "./Submit.module.css";

type FieldError = Schemas["FieldError"];

interface SpecCardProps {
  text: string;
  onChange: (text: string) => void;
  /** Of the text as it is now; null while it is being checked, or is empty. */
  errors: readonly FieldError[] | null;
  valid: boolean;
  /** Whether the check of the text as it is now failed: what it is remains unknown. */
  unchecked: boolean;
}

const LARGEST = 2 * 1024 * 1024;
const ACCEPTED = ".yaml,.yml,.json,application/yaml,application/json,text/plain";

/** The op spec: typed or pasted, from a file, or from an example. */
export function SpecCard({ text, onChange, errors, valid, unchecked }: SpecCardProps) {
  const toast = useToast();
  const [over, setOver] = useState(false);
  const [reveal, setReveal] = useState<{ line: number } | null>(null);
  const found = useMemo(
    () => (errors ?? []).map((error) => ({ error, line: error.line ?? lineInWords(error) })),
    [errors],
  );
  const diagnostics = useMemo(
    () =>
      found.flatMap(({ error, line }): EditorDiagnostic[] =>
        line === null
          ? []
          : [{ line, severity: "error", message: visible(`${error.field}: expected ${error.expected}`) }],
      ),
    [found],
  );

  async function take(file: File) {
    if (file.size > LARGEST) toast("The file is larger than 2 MiB: that is no op spec.", { bad: true });
    else onChange(await file.text());
  }
  function onDrop(event: DragEvent) {
    event.preventDefault();
    setOver(false);
    const file = event.dataTransfer.files[0];
    if (file) void take(file);
  }

  return (
    <Card
      title="Op spec"
      actions={<Sources text={text} onChange={onChange} onFile={(file) => void take(file)} />}
    >
      {/* biome-ignore lint/a11y/noStaticElementInteractions: dropping a file is beside the button that chooses one */}
      <div
        className={styles.drop}
        data-over={over || undefined}
        onDragOver={(event) => {
          event.preventDefault();
          setOver(true);
        }}
        onDragLeave={() => setOver(false)}
        onDropCapture={onDrop}
      >
        <Editor
          label="Op spec, YAML or JSON"
          language="yaml"
          lines={26}
          value={text}
          onChange={onChange}
          diagnostics={diagnostics}
          reveal={reveal}
        />
      </div>
      <div aria-live="polite" className={styles.verdict}>
        {text.trim() === "" ? (
          <p className={styles.muted}>
            Paste a spec, drop a YAML or JSON file here, or begin with an example.
          </p>
        ) : unchecked ? null : errors === null ? (
          <p className={styles.muted}>Checking…</p>
        ) : valid ? (
          <p className={styles.good}>The spec is valid.</p>
        ) : (
          <p className={styles.wrong}>
            {errors.length === 1 ? "One field is wrong." : `${errors.length} fields are wrong.`}
          </p>
        )}
        {found.length > 0 && (
          <ul className={styles.errors}>
            {found.map(({ error, line }) => (
              <li key={`${error.field}:${error.expected}`}>
                <code>
                  <Untrusted text={error.field} />
                </code>
                {line !== null && (
                  <button type="button" className={styles.line} onClick={() => setReveal({ line })}>
                    line {line}
                  </button>
                )}
                <span>
                  found <Untrusted text={JSON.stringify(error.found ?? null)} />, expected{" "}
                  <Untrusted text={error.expected} />
                </span>
              </li>
            ))}
          </ul>
        )}
      </div>
    </Card>
  );
}

/** Of a text that cannot be read, the line that the parser's words name. */
function lineInWords({ field, found }: FieldError): number | null {
  const named =
    field === "document" && typeof found === "string" ? /\bline (\d+)/.exec(found)?.[1] : undefined;
  return named === undefined ? null : Number(named);
}

function Sources({
  text,
  onChange,
  onFile,
}: {
  text: string;
  onChange: (text: string) => void;
  onFile: (file: File) => void;
}) {
  const examples = useExamples();
  const shown = examples.data?.items ?? [];
  return (
    <>
      <Select
        aria-label="Begin with an example"
        className={styles.examples}
        value={shown.find((example) => example.text === text)?.name ?? ""}
        onChange={({ currentTarget: { value } }) => {
          const chosen = shown.find(({ name }) => name === value);
          if (chosen) onChange(chosen.text);
        }}
      >
        <option value="">{text ? "Another example…" : "Begin with an example…"}</option>
        {shown.map(({ name, devices }) => (
          <option key={name} value={name}>
            {name} ({devices.join(", ")})
          </option>
        ))}
      </Select>
      <FileButton label="A spec's file" accept={ACCEPTED} onFile={onFile}>
        From a file
      </FileButton>
    </>
  );
}
