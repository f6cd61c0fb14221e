import type { NodeDocument } from "../../../api/queries";
import { Button, format, Stat, StateBadge, Stats, Time, Untrusted } from "../../../design";
import styles from "./Node.module.css";
import { Section } from "./Section";

type Attempt = NodeDocument["attempts"][number];
type Try = NodeDocument["tries"][number];

const STEPS: Readonly<Record<string, string>> = {
  ideate: "Ask for ideas",
  code: "Write code",
  judge: "Judge",
  verify: "Verify in full",
};

const took = ({ started_at, finished_at }: Attempt) =>
  started_at !== null && finished_at !== null ? finished_at - started_at : null;
const waited = ({ created_at, started_at }: Attempt) =>
  started_at !== null ? started_at - created_at : null;

const TRIED: Readonly<Record<Try["level"], string>> = {
  compile: "Compiled",
  screen: "Screening",
  profile: "Profile",
};

const LEVELS: Readonly<Record<string, string>> = {
  baseline: "Baselines",
  screen: "Screening",
  verify: "Full verification",
};

interface HistoryProps {
  node: NodeDocument;
  /** The verdict that the other views show. */
  shownId: string | null;
  onVerdict: (id: string) => void;
}

/** What was done for the node: attempts, verdicts, cost. */
export function HistoryView({ node, shownId, onVerdict }: HistoryProps) {
  const { cost } = node;
  return (
    <div className={styles.stack}>
      <Stats>
        <Stat label="Model calls">{cost.model_calls}</Stat>
        <Stat
          label="Tokens"
          note={`${format.count(cost.prompt_tokens)} in, ${format.count(cost.completion_tokens)} out`}
        >
          {format.count(cost.prompt_tokens + cost.completion_tokens)}
        </Stat>
        <Stat label="Cost">{format.money(cost.cost_usd)}</Stat>
        <Stat label="Judge" note="compilation included">
          {format.duration(cost.judge_s)}
        </Stat>
        <Stat label="Device held">{format.duration(cost.gpu_seconds)}</Stat>
      </Stats>
      <Section title="Verdicts">
        {node.verdicts.length === 0 && <p>The judge has said nothing of this node yet.</p>}
        <ol aria-label="Verdicts, newest first" className={styles.lines}>
          {node.verdicts.toReversed().map((row) => (
            <li key={row.id}>
              <div className={styles.row}>
                <strong>{LEVELS[row.level] ?? format.words(row.level)}</strong>
                <StateBadge state={row.verdict} />
                <span className={styles.muted}>
                  at <Untrusted text={format.words(row.gate)} />, <Time at={row.created_at} />
                </span>
                {row.id === shownId ? (
                  <span className={styles.muted}>shown</span>
                ) : (
                  <Button kind="quiet" onClick={() => onVerdict(row.id)}>
                    Open
                  </Button>
                )}
              </div>
              {typeof row.document.reason === "string" && <Untrusted text={row.document.reason} />}
            </li>
          ))}
        </ol>
      </Section>
      {node.tries.length > 0 && (
        <Section title="Tries">
          <ol
            aria-label="Candidates that were tried before the node was answered, newest first"
            className={styles.lines}
          >
            {node.tries.toReversed().map((row) => (
              <TryLine key={row.id} row={row} />
            ))}
          </ol>
        </Section>
      )}
      <Section title="Attempts">
        {node.attempts.length === 0 && <p>No step was opened for this node yet.</p>}
        <ol aria-label="Attempts, newest first" className={styles.lines}>
          {node.attempts.toReversed().map((row) => (
            <AttemptLine key={row.id} row={row} />
          ))}
        </ol>
      </Section>
    </div>
  );
}

/** One candidate that was tried for the node: what the judge said of it, and what it took. */
function TryLine({ row }: { row: Try }) {
  return (
    <li>
      <div className={styles.row}>
        <strong>{TRIED[row.level]}</strong>
        {!(row.level !== "screen" && row.verdict === "ambiguous") && (
          <StateBadge state={row.verdict ?? row.state} />
        )}
        {row.score !== null && <span>{format.ratio(row.score)}</span>}
        <span className={styles.muted}>
          <Time at={row.created_at} />, device held {format.duration(row.device_s)}
        </span>
      </div>
      {row.asked_by && (
        <span className={styles.muted}>
          by <Untrusted text={row.asked_by} />
        </span>
      )}
      {row.reason && <Untrusted text={row.reason} />}
    </li>
  );
}

/** One execution of a step, whole: nothing of it is beside the edge. */
function AttemptLine({ row }: { row: Attempt }) {
  const repair = row.kind !== "ideate" && row.ordinal > 0;
  return (
    <li>
      <div className={styles.row}>
        <strong>
          {STEPS[row.kind] ?? format.words(row.kind)}
          {repair && `, repair ${row.ordinal}`}
        </strong>
        <StateBadge state={row.state} />
        <span className={styles.muted}>
          opened <Time at={row.created_at} />, waited {format.duration(waited(row))}, took{" "}
          {format.duration(took(row))}
          {row.tries > 1 && `, ${row.tries} tries`}
        </span>
      </div>
      {row.owner && (
        <span className={styles.muted}>
          by <Untrusted text={row.owner} />
        </span>
      )}
      {row.error && (
        <span className={styles.bad}>
          <Untrusted text={row.error} />
        </span>
      )}
    </li>
  );
}
