import type { KernelDocument } from "../../api/queries";
import { type ReverificationSummary, useReverifications, useReverify } from "../../api/reverifications";
import { Loading } from "../../app/Page";
import { SpeedUp } from "../../app/SpeedUp";
import {
  Badge,
  Button,
  Card,
  type Column,
  ErrorNotice,
  Table,
  Time,
  type Tone,
  Untrusted,
} from "../../design";
import styles from "./Kernels.module.css";
import { DRIFT_NAMES } from "./verification";

const TONES: Readonly<Record<string, Tone>> = { holds: "ok", unknown: "wait" };

const COLUMNS: readonly Column<ReverificationSummary>[] = [
  {
    key: "outcome",
    header: "Result",
    lead: true,
    cell: ({ outcome, state }) => (
      <Badge tone={outcome ? (TONES[outcome] ?? "bad") : "accent"}>
        {outcome ? (DRIFT_NAMES.get(outcome) ?? outcome) : state}
      </Badge>
    ),
  },
  { key: "at", header: "When", cell: (row) => <Time at={row.finished_at ?? row.created_at} /> },
  { key: "then", header: "Kept at", numeric: true, cell: ({ before }) => <Score measured={before} /> },
  { key: "now", header: "Now", numeric: true, cell: ({ now }) => <Score measured={now} /> },
  {
    key: "versions",
    header: "Changed since",
    wide: true,
    cell: ({ before, now }) => <Untrusted text={changed(before, now)} />,
  },
  { key: "reason", header: "Why", wide: true, cell: ({ reason }) => <Untrusted text={reason ?? ""} /> },
];

function Score({ measured }: { measured: ReverificationSummary["now"] }) {
  return <SpeedUp value={measured?.score} ci95={measured?.ci95 ?? undefined} />;
}

/** The versions, and the device, that are not what they were. */
export function changes(
  before: ReverificationSummary["before"],
  now: ReverificationSummary["now"],
): string[] {
  if (!before || !now) return [];
  const names = Object.keys(now.versions).filter((name) => now.versions[name] !== before.versions[name]);
  const versions = names.map((name) => `${name} ${before.versions[name] ?? "none"} to ${now.versions[name]}`);
  return now.device === before.device ? versions : [`device ${before.device} to ${now.device}`, ...versions];
}

/** The same as text; empty where nothing was measured yet. */
export function changed(before: ReverificationSummary["before"], now: ReverificationSummary["now"]): string {
  if (!before || !now) return "";
  return changes(before, now).join(", ") || "nothing";
}

/** How often it was judged anew, and with what result. */
export function Reverifications({ kernel }: { kernel: KernelDocument }) {
  const { query, underWay } = useReverifications(kernel.id);
  const request = useReverify(kernel.id);
  return (
    <Card
      title="Judged anew"
      actions={
        <Button onClick={() => request.mutate()} busy={request.isPending} disabled={underWay}>
          Judge it anew
        </Button>
      }
    >
      {request.isError && (
        <ErrorNotice error={request.error} what="It was not asked for" safe="Nothing has changed." />
      )}
      <Loading query={query}>
        {({ items }) => (
          <Table
            caption="Re-verifications, newest first"
            cards
            columns={COLUMNS}
            rows={items}
            rowKey={(row) => row.id}
            empty={<p className={styles.detail}>Not since it was kept.</p>}
          />
        )}
      </Loading>
    </Card>
  );
}
