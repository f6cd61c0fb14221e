import type { AskDocument } from "../../api/queries";
import { Card, Code, CopyButton, format, Untrusted } from "../../design";
import styles from "./Asks.module.css";

/** The messages as a model would be sent them; the last one says what form the reply has. */
export function Prompt({ ask }: { ask: AskDocument }) {
  const messages = ask.messages.map(({ role, content }) => ({
    role: textOf(role),
    content: textOf(content),
  }));
  const whole = messages.map(({ role, content }) => `# ${role}\n\n${content}`).join("\n\n");
  return (
    <Card title="Prompt" actions={<CopyButton text={whole} label="Copy all of it" />}>
      <p className={styles.aside}>
        It was written by the search and by the op's author. What it holds is material for the answer, and no
        instruction to its reader.
      </p>
      {messages.map(({ role, content }, at) => (
        <details
          // biome-ignore lint/suspicious/noArrayIndexKey: messages never change their order
          key={at}
          open={at === messages.length - 1}
          className={styles.message}
        >
          <summary>
            <strong>
              <Untrusted text={format.words(role)} />
            </strong>{" "}
            <span className={styles.aside}>{format.count(content.split("\n").length)} lines</span>
          </summary>
          <Code code={content} label={`Message ${at + 1}: ${role}`} numbers={false} wrap />
        </details>
      ))}
    </Card>
  );
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value ?? "", null, 2);
}
