import { useId } from "react";
import type { FailureDocument, ReportDocument } from "../../../api/node";
import { Code, type Column, Table, Untrusted } from "../../../design";
import { apart, element, excess, failureInWords, limits, shown } from "./failure";
import styles from "./Node.module.css";
import { Section } from "./Section";

type Sample = NonNullable<FailureDocument["samples"]>[number];

const SAMPLES: readonly Column<Sample>[] = [
  { key: "index", header: "Index", cell: (row) => <Untrusted text={shown(row.index)} /> },
  {
    key: "expected",
    header: "Expected",
    numeric: true,
    cell: (row) => <Untrusted text={apart(row.expected, row.found)[0]} />,
  },
  {
    key: "found",
    header: "Found",
    numeric: true,
    cell: (row) => <Untrusted text={apart(row.found, row.expected)[0]} />,
  },
  { key: "limit", header: "Limit", numeric: true, cell: (row) => <Untrusted text={shown(row.limit)} /> },
];

/** What ended the judging: the worst element, or the judge's words. */
export function FailureCard({ report }: { report: ReportDocument }) {
  const { failure } = report;
  if (!failure) return null;
  const where = element(failure);
  const off = excess(failure);
  return (
    <div className={styles.failure}>
      <Section title={<Untrusted text={`Failed at the ${report.gate} gate`} />}>
        <p>
          <Untrusted text={failureInWords(failure)} />
        </p>
        <dl className={styles.inlineFacts}>
          <Fact name="Workload" value={failure.workload} />
          <Fact name="Inputs" value={failure.family} />
          <Fact name="Worst element" value={where} />
          {where && <Fact name="Expected" value={apart(failure.expected, failure.found)[0]} />}
          {where && <Fact name="Found" value={apart(failure.found, failure.expected)[0]} />}
          {where && failure.eager != null && <Fact name="PyTorch eager" value={shown(failure.eager)} />}
          {where && <Fact name="Limit" value={shown(failure.limit)} />}
          {off !== null && <Fact name="Off by" value={limits(off)} />}
          <Fact name="Pattern" value={failure.pattern} />
        </dl>
        <Inputs failure={failure} />
        {failure.samples && failure.samples.length > 0 && (
          <Table
            caption="The worst of the wrong elements that were looked at"
            columns={SAMPLES}
            rows={failure.samples}
            rowKey={(row) => `${shown(row.index)}-${shown(row.found)}`}
          />
        )}
        {failure.log && failure.kind !== "compile" && (
          <Code code={failure.log} label="Log of the failure" numbers={false} wrap />
        )}
      </Section>
    </div>
  );
}

/** The inputs that a search found: in words, and as the judge makes them again. */
function Inputs({ failure }: { failure: FailureDocument }) {
  const id = useId();
  const lines = (failure.description ?? "").split("\n").filter((line) => line.trim());
  if (lines.length === 0 && !failure.recipe) return null;
  const wrong = failure.kind === "counterexample";
  return (
    <>
      {lines.length > 0 && (
        <div>
          <p id={id} className={styles.muted}>
            {wrong ? "The inputs on which it is wrong, and PyTorch right" : "The inputs"}
          </p>
          <ul aria-labelledby={id} className={styles.plainList}>
            {lines.map((line, at) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: a line is its place
              <li key={at} className={styles.breakable}>
                <Untrusted text={line} />
              </li>
            ))}
          </ul>
        </div>
      )}
      {failure.recipe && (
        <details className={styles.details}>
          <summary>Recipe</summary>
          <Code
            code={JSON.stringify(failure.recipe, null, 2)}
            label="Recipe of the inputs"
            numbers={false}
            wrap
          />
        </details>
      )}
    </>
  );
}

function Fact({ name, value }: { name: string; value: string | null | undefined }) {
  if (!value) return null;
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        <Untrusted text={value} />
      </dd>
    </div>
  );
}
