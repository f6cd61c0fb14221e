import { baselineName, inOrder } from "../../app/SpeedUp";
import { Badge, Card, type Column, format, Table, Untrusted } from "../../design";
import styles from "./Submit.module.css";
import type { CheckedSpec } from "./submission";

type Workload = NonNullable<CheckedSpec["workloads"]>[number];

const ROLES: Readonly<Record<string, { tone: "accent" | "wait"; means: string }>> = {
  bench: { tone: "accent", means: "Timed: decides which kernel is faster" },
  test: { tone: "wait", means: "Checked, not timed" },
  holdout: { tone: "wait", means: "Checked in verification; the model does not see it" },
};

const COLUMNS: readonly Column<Workload>[] = [
  { key: "id", header: "Workload", cell: (row) => <Untrusted text={row.id} /> },
  {
    key: "role",
    header: "Role",
    lead: true,
    cell: ({ role, weight }) => (
      <span title={ROLES[role]?.means}>
        <Badge tone={ROLES[role]?.tone ?? "wait"}>{role}</Badge>
        {weight !== 1 && ` weight ${weight}`}
      </span>
    ),
  },
  {
    key: "axes",
    header: "Axes",
    wide: true,
    cell: ({ axes, dtypes }) => (
      <Untrusted
        text={[
          ...Object.entries(axes).map(([name, size]) => `${name} ${format.count(size)}`),
          ...Object.entries(dtypes ?? {}).map(([name, dtype]) => `${name} ${dtype}`),
        ].join(" · ")}
      />
    ),
  },
  { key: "bytes", header: "Bytes, at least", numeric: true, cell: (row) => format.bytes(row.min_bytes) },
  { key: "flops", header: "Operations", numeric: true, cell: (row) => format.rate(row.flops, "") },
];

/** What a spec says, so that a person sees whether it is what they meant. */
export function MeaningCard({ spec, device }: { spec: CheckedSpec; device: string }) {
  const workloads = spec.workloads?.filter((workload) => workload.device === device) ?? [];
  const others = spec.devices?.filter((name) => name !== device) ?? [];
  return (
    <Card
      title={
        <>
          What it means: <Untrusted text={spec.name} />
        </>
      }
      actions={spec.op_id && <Badge>stored before</Badge>}
    >
      {spec.description && (
        <p className={styles.prose}>
          <Untrusted text={spec.description} />
        </p>
      )}
      {workloads.length === 0 ? (
        <p className={styles.wrong}>
          The spec has no workloads for a {device || "such a"} target
          {others.length > 0 && `; it has some for ${others.join(" and ")}`}.
        </p>
      ) : (
        <Table
          cards
          caption={`Workloads on ${device}`}
          columns={COLUMNS}
          rows={workloads}
          rowKey={(row) => row.id}
        />
      )}
      <p className={styles.muted}>
        To be faster than{" "}
        {inOrder(spec.baselines ?? [])
          .map(baselineName)
          .join(", ")}
        . Bytes and operations are those that no kernel can avoid: the physical limit comes from them.
      </p>
    </Card>
  );
}
