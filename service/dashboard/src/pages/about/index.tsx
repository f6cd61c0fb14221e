import licences from "virtual:licences";
import { useState } from "react";
import { useHealth } from "../../api/queries";
import { Page } from "../../app/Page";
import { Card, Field, TextInput, Untrusted } from "../../design";
import styles from "./About.module.css";

export default function AboutPage() {
  const { data: health } = useHealth();
  return (
    <Page title="About">
      <Card title="Warpsmith">
        <p className={styles.prose}>
          Kernel search with language models: ideas in prose, kernels in code, verdicts from a judge that
          cannot be fooled. Version <Untrusted text={health?.version ?? "unknown"} />, under the Apache
          License 2.0.
        </p>
        <p>
          The REST API can be read and tried at <a href="/docs">/docs</a>; the document behind it is{" "}
          <a href="/openapi.json">/openapi.json</a>.
        </p>
      </Card>
      <Licences />
    </Page>
  );
}

function Licences() {
  const [text, setText] = useState("");
  const shown = licences.filter(({ name, licence }) =>
    `${name} ${licence}`.toLowerCase().includes(text.toLowerCase()),
  );
  return (
    <Card title="Third-party licences">
      <p className={styles.prose}>
        These pages are built from {licences.length} packages: {kinds().join(", ")}. Open one to read its
        licence.
      </p>
      <div className={styles.find}>
        <Field label="Find a package or a licence">
          <TextInput type="search" value={text} onChange={(event) => setText(event.currentTarget.value)} />
        </Field>
      </div>
      <ul className={styles.list}>
        {shown.map(({ name, version, licence, text: words }) => (
          <li key={`${name}@${version}`}>
            <details>
              <summary>
                <code className={styles.name}>{name}</code>
                <span className={styles.muted}>{version}</span>
                <span className={styles.licence}>{licence}</span>
              </summary>
              {words ? (
                <pre className={styles.text}>{words}</pre>
              ) : (
                <p>The package brings no text of its licence.</p>
              )}
            </details>
          </li>
        ))}
      </ul>
      {shown.length === 0 && <p className={styles.muted}>No package matches.</p>}
    </Card>
  );
}

/** `39 under MIT`, the most frequent first. */
function kinds(): string[] {
  const counts = new Map<string, number>();
  for (const { licence } of licences) counts.set(licence, (counts.get(licence) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]).map(([licence, count]) => `${count} under ${licence}`);
}
