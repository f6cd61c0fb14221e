import type { NodeDocument } from "../../../api/queries";
import {
  Button,
  type Column,
  format,
  Stat,
  StateBadge,
  Stats,
  Table,
  Time,
  Untrusted,
} from "../../../design";
import styles from "./Node.module.css";
import { Section } from "./Section";

type Attempt = NodeDocument["attempts"][number];
type Record = NodeDocument["verdicts"][number];
type Try = NodeDocument["tries"][number];

const STEPS: Readonly<globalThis.Record<string, string>> = {
  ideate: "Ask for ideas",
  code: "Write code",
  judge: "Judge",
  verify: "Verify in full",
};

const ATTEMPTS: readonly Column<Attempt>[] = [
  {
    key: "kind",
    header: "Step",
    cell: (row) => (
      <>
        {STEPS[row.kind] ?? format.words(row.kind)}
        {row.kind !== "ideate" && row.ordinal > 0 && (
          <span className={styles.muted}> repair {row.ordinal}</span>
        )}
      </>
    ),
  },
  { key: "state", header: "State", cell: (row) => <StateBadge state={row.state} /> },
  {
    key: "owner",
    header: "Worker",
    cell: (row) =>
      row.owner ? <Untrusted text={row.owner} /> : <span className={styles.muted}>{format.NONE}</span>,
  },
  { key: "tries", header: "Tries", numeric: true, sortBy: (row) => row.tries, cell: (row) => row.tries },
  {
    key: "waited",
    header: "Waited",
    numeric: true,
    sortBy: (row) => waited(row),
    cell: (row) => format.duration(waited(row)),
  },
  {
    key: "took",
    header: "Took",
    numeric: true,
    sortBy: (row) => took(row),
    cell: (row) => format.duration(took(row)),
  },
  {
    key: "opened",
    header: "Opened",
    sortBy: (row) => row.created_at,
    cell: (row) => <Time at={row.created_at} />,
  },
  {
    key: "error",
    header: "Error",
    cell: (row) =>
      row.error ? (
        <span className={styles.bad}>
          <Untrusted text={row.error} />
        </span>
      ) : null,
  },
];

const took = ({ started_at, finished_at }: Attempt) =>
  started_at !== null && finished_at !== null ? finished_at - started_at : null;
const waited = ({ created_at, started_at }: Attempt) =>
  started_at !== null ? started_at - created_at : null;

const TRIED: Readonly<globalThis.Record<Try["level"], string>> = {
  compile: "Compiled",
  screen: "Screening",
  profile: "Profile",
};

const LEVELS: Readonly<globalThis.Record<string, string>> = {
  baseline: "Baselines",
  screen: "Screening",
  verify: "Full verification",
};

const TRIES: readonly Column<Try>[] = [
  { key: "level", header: "Level", cell: (row) => TRIED[row.level] },
  { key: "verdict", header: "Verdict", cell: (row) => <StateBadge state={row.verdict ?? row.state} /> },
  {
    key: "score",
    header: "Speed-up",
    numeric: true,
    sortBy: (row) => row.score,
    cell: (row) => format.ratio(row.score),
  },
  {
    key: "reason",
    header: "Reason",
    cell: (row) => (row.reason ? <Untrusted text={row.reason} /> : null),
  },
  {
    key: "by",
    header: "By",
    cell: (row) =>
      row.asked_by ? <Untrusted text={row.asked_by} /> : <span className={styles.muted}>{format.NONE}</span>,
  },
  {
    key: "device",
    header: "Device held",
    numeric: true,
    sortBy: (row) => row.device_s,
    cell: (row) => format.duration(row.device_s),
  },
  { key: "when", header: "When", cell: (row) => <Time at={row.created_at} /> },
];

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
        <Table
          caption="Verdicts, newest first"
          columns={verdictColumns(shownId, onVerdict)}
          rows={node.verdicts.toReversed()}
          rowKey={(row) => row.id}
          empty="The judge has said nothing of this node yet."
        />
      </Section>
      {node.tries.length > 0 && (
        <Section title="Tries">
          <Table
            caption="Candidates that were tried before the node was answered, newest first"
            columns={TRIES}
            rows={node.tries.toReversed()}
            rowKey={(row) => row.id}
            empty="Nothing was tried for this node."
          />
        </Section>
      )}
      <Section title="Attempts">
        <Table
          caption="Attempts, newest first"
          columns={ATTEMPTS}
          rows={node.attempts.toReversed()}
          rowKey={(row) => row.id}
          empty="No step was opened for this node yet."
        />
      </Section>
    </div>
  );
}

function verdictColumns(shownId: string | null, onVerdict: (id: string) => void): Column<Record>[] {
  return [
    { key: "level", header: "Level", cell: (row) => LEVELS[row.level] ?? format.words(row.level) },
    { key: "verdict", header: "Verdict", cell: (row) => <StateBadge state={row.verdict} /> },
    { key: "gate", header: "Gate", cell: (row) => <Untrusted text={format.words(row.gate)} /> },
    {
      key: "reason",
      header: "Reason",
      cell: (row) => <Untrusted text={typeof row.document.reason === "string" ? row.document.reason : ""} />,
    },
    { key: "when", header: "When", cell: (row) => <Time at={row.created_at} /> },
    {
      key: "open",
      header: <span className="visually-hidden">Open</span>,
      cell: (row) =>
        row.id === shownId ? (
          <span className={styles.muted}>shown</span>
        ) : (
          <Button kind="quiet" onClick={() => onVerdict(row.id)}>
            Open
          </Button>
        ),
    },
  ];
}
