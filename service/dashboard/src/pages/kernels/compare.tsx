import { useMemo } from "react";
import { Link, useSearchParams } from "react-router";
import { type KernelDocument, useKernel, useKernels } from "../../api/queries";
import { Loading, Page } from "../../app/Page";
import { SpeedUp } from "../../app/SpeedUp";
import {
  Badge,
  Card,
  type Column,
  EmptyState,
  Field,
  format,
  Select,
  Table,
  Time,
  Untrusted,
  visible,
} from "../../design";
import { DiffTable, difference } from "../../design/diff";
import { axesInWords, evidenceOf, type Workload } from "./evidence";
import styles from "./Kernels.module.css";
import { notCompared } from "./query";
import { standingInWords } from "./verification";

const MOST = 200;

export default function ComparePage() {
  const [params, setParams] = useSearchParams();
  const a = params.get("a");
  const b = params.get("b");
  const set = (side: "a" | "b") => (id: string) =>
    setParams(
      (old) => {
        const next = new URLSearchParams(old);
        if (id) next.set(side, id);
        else next.delete(side);
        return next;
      },
      { replace: true, preventScrollReset: true },
    );
  return (
    <Page title="Compare kernels">
      <div className={styles.columns}>
        <Side label="First" id={a} onChange={set("a")} />
        <Second first={a} id={b} onChange={set("b")} />
      </div>
      {a && b ? (
        <Both a={a} b={b} />
      ) : (
        <EmptyState title="Choose two kernels">
          <p>Kernels of one op are compared: their times side by side, and the difference of their code.</p>
        </EmptyState>
      )}
    </Page>
  );
}

/** Once the first is chosen, kernels of its op are offered. */
function Second({ first, ...side }: { first: string | null } & Omit<SideProps, "label" | "op">) {
  return first ? <OfItsOp first={first} {...side} /> : <Side label="Second" {...side} />;
}

function OfItsOp({ first, ...side }: { first: string } & Omit<SideProps, "label" | "op">) {
  const kernel = useKernel(first);
  return <Side label="Second" op={kernel.data?.op_name} {...side} />;
}

interface SideProps {
  label: string;
  id: string | null;
  /** Only kernels of this op are offered. */
  op?: string | undefined;
  onChange: (id: string) => void;
}

function Side({ label, id, op, onChange }: SideProps) {
  const kernels = useKernels({ limit: MOST, ...(op && { op }) });
  const rows = kernels.data?.items ?? [];
  return (
    <Field label={label}>
      <Select value={id ?? ""} onChange={(event) => onChange(event.currentTarget.value)}>
        <option value="">Choose a kernel…</option>
        {id && !rows.some((row) => row.id === id) && <option value={id}>{visible(id)}</option>}
        {rows.map((row) => (
          <option key={row.id} value={row.id}>
            {visible(`${row.op_name} on ${row.target}, ${format.ratio(row.score)}: ${row.title ?? row.id}`)}
          </option>
        ))}
      </Select>
    </Field>
  );
}

function Both({ a, b }: { a: string; b: string }) {
  const first = useKernel(a);
  const second = useKernel(b);
  return (
    <Loading query={first}>
      {(left) => <Loading query={second}>{(right) => <Comparison left={left} right={right} />}</Loading>}
    </Loading>
  );
}

interface Fact {
  name: string;
  value: (kernel: KernelDocument) => React.ReactNode;
}

const FACTS: readonly Fact[] = [
  {
    name: "Kernel",
    value: (kernel) => (
      <Link to={`/kernels/${encodeURIComponent(kernel.id)}`}>
        <Untrusted text={kernel.op_name} />
      </Link>
    ),
  },
  { name: "Idea", value: ({ title, technique }) => <Untrusted text={title ?? format.words(technique)} /> },
  { name: "Over the fastest baseline", value: ({ score, ci95 }) => <SpeedUp value={score} ci95={ci95} /> },
  { name: "Of the physical limit", value: ({ limit_fraction }) => format.percent(limit_fraction) },
  {
    name: "Target",
    value: ({ target, language }) => (
      <>
        <Untrusted text={target} />, <Untrusted text={language} />
      </>
    ),
  },
  { name: "Device", value: ({ verification }) => <Untrusted text={verification?.device ?? format.NONE} /> },
  {
    name: "Verified",
    value: ({ verification, reverification, created_at }) => {
      const { tone, word } = standingInWords(verification, reverification);
      return (
        <>
          <Time at={verification?.verified_at ?? created_at} /> <Badge tone={tone}>{word}</Badge>
        </>
      );
    },
  },
];

function Comparison({ left, right }: { left: KernelDocument; right: KernelDocument }) {
  const refused = notCompared(left, right);
  if (refused) {
    return (
      <EmptyState title="Kernels of different ops are not compared">
        <p>{visible(refused)} Choose two of one op.</p>
      </EmptyState>
    );
  }
  return <Compared left={left} right={right} />;
}

function Compared({ left, right }: { left: KernelDocument; right: KernelDocument }) {
  const same =
    left.verification?.fingerprint && left.verification.fingerprint === right.verification?.fingerprint;
  return (
    <>
      <div className={styles.scroll}>
        <table className={styles.versus}>
          <thead>
            <tr>
              <td />
              <th scope="col">First</th>
              <th scope="col">Second</th>
            </tr>
          </thead>
          <tbody>
            {FACTS.map(({ name, value }) => (
              <tr key={name}>
                <th scope="row">{name}</th>
                <td>{value(left)}</td>
                <td>{value(right)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <Card title="Workloads">
        {!same && (
          <p className={styles.warning}>
            The two were not verified under the same device, versions and protocol: their times tell less than
            their speed-ups, which were each measured against baselines in the same run.
          </p>
        )}
        <Times left={left} right={right} />
      </Card>
      <Card title="Code">
        <CodeDifference before={left.source} now={right.source} />
      </Card>
    </>
  );
}

interface Pair {
  id: string;
  left: Workload | undefined;
  right: Workload | undefined;
}

function Times({ left, right }: { left: KernelDocument; right: KernelDocument }) {
  const pairs = useMemo(
    () => pairsOf(evidenceOf(left).workloads, evidenceOf(right).workloads),
    [left, right],
  );
  return <Table cards caption="Workloads of both" columns={COLUMNS} rows={pairs} rowKey={(row) => row.id} />;
}

/** Workloads of the same name and sizes stand in one row. */
function pairsOf(left: readonly Workload[], right: readonly Workload[]): Pair[] {
  const key = ({ id, axes }: Workload) => `${id} (${axesInWords(axes)})`;
  const names = [...new Set([...left, ...right].map(key))];
  return names.map((id) => ({
    id,
    left: left.find((workload) => key(workload) === id),
    right: right.find((workload) => key(workload) === id),
  }));
}

function timeOf(workload: Workload | undefined): number | null {
  return workload?.timings.find(({ contender }) => contender === "candidate")?.timeUs ?? null;
}

const COLUMNS: readonly Column<Pair>[] = [
  { key: "id", header: "Workload", cell: (row) => <Untrusted text={row.id} /> },
  { key: "left", header: "First", numeric: true, cell: (row) => format.micros(timeOf(row.left)) },
  { key: "right", header: "Second", numeric: true, cell: (row) => format.micros(timeOf(row.right)) },
  {
    key: "ratio",
    header: "Second is faster by",
    numeric: true,
    cell: (row) => {
      const [first, second] = [timeOf(row.left), timeOf(row.right)];
      return first && second ? format.ratio(first / second) : format.NONE;
    },
  },
];

function CodeDifference({ before, now }: { before: string; now: string }) {
  const found = useMemo(() => difference(before, now, false), [before, now]);
  if (found.added + found.removed === 0) return <p className={styles.detail}>Not a line differs.</p>;
  return (
    <>
      <p className={styles.detail}>
        {format.count(found.removed)} {found.removed === 1 ? "line" : "lines"} of the first removed,{" "}
        {format.count(found.added)} added.
      </p>
      <DiffTable rows={found.rows} before={before} now={now} beforeName="First" nowName="Second" />
    </>
  );
}
