import { Link } from "react-router";
import type { KernelSummary } from "../../api/queries";
import { baselineName, SpeedUp, SpeedUps } from "../../app/SpeedUp";
import { Badge, Checkbox, type Column, format, Time, Untrusted, visible } from "../../design";
import { axesInWords } from "./evidence";
import styles from "./Kernels.module.css";
import { standingInWords } from "./verification";

type Columns = readonly Column<KernelSummary>[];

const OP: Column<KernelSummary> = {
  key: "op",
  header: "Kernel",
  cell: (row) => (
    <div className={styles.op}>
      <Link to={`/kernels/${encodeURIComponent(row.id)}`} className={styles.name}>
        <Untrusted text={row.op_name} />
      </Link>
      <span className={styles.detail}>
        <Untrusted text={row.title ?? format.words(row.technique)} />
      </span>
    </div>
  ),
};

const TARGET: Column<KernelSummary> = {
  key: "target",
  header: "Target",
  cell: (row) => (
    <div className={styles.stacked}>
      <Untrusted text={row.target} />
      <span className={styles.detail}>
        <Untrusted text={row.language} />
      </span>
    </div>
  ),
};

const SHAPES: Column<KernelSummary> = {
  key: "shapes",
  header: "Timed shapes",
  wide: true,
  cell: ({ workloads }) => (
    <ul className={styles.shapes}>
      {workloads
        ?.filter(({ role }) => role === "bench")
        .map(({ id, axes }) => (
          <li key={id}>
            <Untrusted text={id} />{" "}
            <span className={styles.detail}>
              <Untrusted text={axesInWords(axes)} />
            </span>
          </li>
        ))}
    </ul>
  ),
};

const LIMIT: Column<KernelSummary> = {
  key: "limit",
  header: "Of the limit",
  numeric: true,
  sortBy: (row) => row.limit_fraction,
  cell: (row) => format.percent(row.limit_fraction),
};

const STATE: Column<KernelSummary> = {
  key: "state",
  header: "Evidence",
  lead: true,
  cell: ({ verification, reverification }) => {
    const { tone, word, says } = standingInWords(verification, reverification);
    return (
      <span title={says}>
        <Badge tone={tone}>{word}</Badge>
      </span>
    );
  },
};

const KEPT: Column<KernelSummary> = {
  key: "created",
  header: "Kept",
  numeric: true,
  sortBy: (row) => row.created_at,
  cell: (row) => <Time at={row.created_at} />,
};

const score = (cell: Column<KernelSummary>["cell"], header: string): Column<KernelSummary> => ({
  key: "score",
  header,
  numeric: true,
  sortBy: (row) => row.score,
  cell,
});

interface Picking {
  chosen: readonly string[];
  onPick: (id: string) => void;
}

/** Each baseline has a column where there is room; else they unfold below the best. */
export function columns(wide: boolean, baselines: readonly string[], { chosen, onPick }: Picking): Columns {
  const compare: Column<KernelSummary> = {
    key: "compare",
    header: "Compare",
    cell: (row) => (
      <Checkbox
        label={<span className="visually-hidden">Compare {visible(row.op_name)}</span>}
        checked={chosen.includes(row.id)}
        onChange={() => onPick(row.id)}
      />
    ),
  };
  const speeds: Columns = wide
    ? [
        score((row) => <SpeedUp value={row.score} ci95={row.ci95} />, "Best"),
        ...baselines.map(
          (name): Column<KernelSummary> => ({
            key: `over-${name}`,
            header: `vs ${baselineName(name)}`,
            numeric: true,
            cell: (row) => <SpeedUp value={row.speedup?.[name]} ci95={row.speedup_ci95?.[name]} />,
          }),
        ),
      ]
    : [
        score(
          (row) => (
            <SpeedUps
              value={row.score}
              ci95={row.ci95}
              each={row.speedup ?? {}}
              intervals={row.speedup_ci95 ?? {}}
            />
          ),
          "Speed-up",
        ),
      ];
  return [OP, STATE, SHAPES, TARGET, ...speeds, LIMIT, KEPT, compare];
}
