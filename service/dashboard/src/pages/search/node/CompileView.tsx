import type { ReportDocument } from "../../../api/node";
import { Badge, Code, type Column, EmptyState, format, Stat, Stats, Table, Untrusted } from "../../../design";
import styles from "./Node.module.css";
import { Section } from "./Section";

type Kernel = NonNullable<NonNullable<ReportDocument["compile"]>["kernels"]>[number];

const COLUMNS: readonly Column<Kernel>[] = [
  {
    key: "name",
    header: "Kernel",
    sortBy: (row) => row.name,
    cell: (row) => (
      <code>
        <Untrusted text={row.name} />
      </code>
    ),
  },
  {
    key: "registers",
    header: "Registers per thread",
    numeric: true,
    sortBy: (row) => row.registers,
    cell: (row) => format.count(row.registers),
  },
  {
    key: "spills",
    header: "Spilled per thread",
    numeric: true,
    sortBy: (row) => row.spills,
    cell: (row) =>
      row.spills ? <Badge tone="warn">{format.bytes(row.spills)}</Badge> : format.bytes(row.spills),
  },
  {
    key: "shared",
    header: "Shared per block",
    numeric: true,
    sortBy: (row) => row.shared,
    cell: (row) => format.bytes(row.shared),
  },
];

/** What the compiler made of the candidate. */
export function CompileView({ report }: { report: ReportDocument }) {
  const { compile, failure } = report;
  const said = [compile?.log, failure?.kind === "compile" ? failure.log : null].filter(Boolean);
  const log = [...new Set(said)].join("\n");
  if (!compile && !log) {
    return (
      <EmptyState title="Not compiled">
        {report.level === "baseline"
          ? "This verdict is of the op's reference, which PyTorch runs."
          : `The candidate did not get past the ${format.words(report.gate)} gate.`}
      </EmptyState>
    );
  }
  const kernels = compile?.kernels ?? [];
  const figures = kernels.some(({ registers, spills, shared }) => registers ?? spills ?? shared);
  return (
    <div className={styles.stack}>
      {compile && (
        <Stats>
          <Stat label="Time to compile">{format.duration(compile.seconds)}</Stat>
          <Stat label="Binary">
            {compile.cached === true
              ? "Was there already"
              : compile.cached === false
                ? "Built anew"
                : format.NONE}
          </Stat>
          <Stat label="Kernels">{kernels.length}</Stat>
          {compile.digest && (
            <Stat label="Digest">
              <code title={compile.digest}>{compile.digest.slice(0, 12)}</code>
            </Stat>
          )}
        </Stats>
      )}
      <Section title="Kernels">
        <Table
          caption="Kernels of the candidate"
          columns={COLUMNS}
          rows={kernels}
          rowKey={(row) => row.name}
          empty="The compiler named no kernel."
        />
        {kernels.length > 0 && !figures && (
          <p className={styles.muted}>
            A compiler for a CPU tells neither registers nor spills; shared memory is a GPU's.
          </p>
        )}
      </Section>
      <Section title="What the compiler said">
        {log ? (
          <Code code={log} label="Log of the compiler" numbers={false} wrap />
        ) : (
          <p className={styles.muted}>Nothing: neither errors nor warnings.</p>
        )}
      </Section>
    </div>
  );
}
