import type { WaitingFor } from "../../api/progress";
import { Badge, format, Time, type Tone, Untrusted } from "../../design";
import styles from "./Search.module.css";

const WHAT: Readonly<Record<WaitingFor["what"], { label: string; tone: Tone }>> = {
  model: { label: "Model", tone: "accent" },
  judge: { label: "Judge", tone: "accent" },
  answer: { label: "Answer", tone: "warn" },
  worker: { label: "No worker", tone: "bad" },
  retry: { label: "Put off", tone: "warn" },
  person: { label: "You", tone: "warn" },
  step: { label: "Queue", tone: "wait" },
};

/** What a search waits for, each with its reason. */
export function Waiting({ items }: { items: readonly WaitingFor[] }) {
  if (items.length === 0) return null;
  return (
    <ul className={styles.waiting} aria-label="What the search waits for">
      {items.map(({ what, detail, until }) => (
        <li key={`${what}:${detail}`}>
          <Badge tone={WHAT[what]?.tone ?? "wait"}>{WHAT[what]?.label ?? format.words(what)}</Badge>
          <span>
            <Untrusted text={detail} />
            {until != null && (
              <>
                {" "}
                · again <Time at={until} />
              </>
            )}
          </span>
        </li>
      ))}
    </ul>
  );
}
