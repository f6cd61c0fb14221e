import { Link } from "react-router";
import type { SearchSummary } from "../../api/queries";
import { baselineName, SpeedUp, SpeedUps } from "../../app/SpeedUp";
import { type Column, format, Meter, StateBadge, Time, Untrusted } from "../../design";
import styles from "./Searches.module.css";

type Columns = readonly Column<SearchSummary>[];

const OP: Column<SearchSummary> = {
  key: "op",
  header: "Op",
  cell: (row) => (
    <div className={styles.op}>
      <Link to={`/searches/${encodeURIComponent(row.id)}`} className={styles.name}>
        <Untrusted text={row.op_name} />
      </Link>
      <span className={styles.detail}>
        <Detail row={row} />
      </span>
    </div>
  ),
};

/** Why it ended as it did, else the idea that leads. */
function Detail({ row }: { row: SearchSummary }) {
  if (row.state === "failed" && row.reason) return <Untrusted text={row.reason} />;
  if (row.best?.title) return <Untrusted text={row.best.title} />;
  return <Untrusted text={row.reason ?? "no accepted candidate yet"} />;
}

const STATE: Column<SearchSummary> = {
  key: "state",
  header: "State",
  lead: true,
  cell: (row) => <StateBadge state={row.state} />,
};

const TARGET: Column<SearchSummary> = {
  key: "target",
  header: "Target",
  cell: (row) => (
    <div className={styles.op}>
      <Untrusted text={row.target} />
      <span className={styles.detail}>
        <Untrusted text={row.language} />, {row.provider || "unknown model"}
      </span>
    </div>
  ),
};

const LIMIT: Column<SearchSummary> = {
  key: "limit",
  header: "Of the limit",
  numeric: true,
  sortBy: (row) => row.best?.limit_fraction,
  cell: ({ best }) => {
    const share = best?.limit_fraction;
    if (share === null || share === undefined) return format.NONE;
    const text = format.percent(share);
    return (
      <div className={styles.limit}>
        {text}
        <Meter label="Share of the physical limit" text={text} value={share} max={1} tone="ok" />
      </div>
    );
  },
};

const CANDIDATES: Column<SearchSummary> = {
  key: "candidates",
  header: "Candidates",
  numeric: true,
  sortBy: (row) => row.spend.candidates,
  cell: (row) => format.count(row.spend.candidates),
};

const COST: Column<SearchSummary> = {
  key: "cost",
  header: "Spent",
  numeric: true,
  sortBy: (row) => row.spend.cost_usd,
  cell: (row) => (
    <div className={styles.stacked}>
      {format.money(row.spend.cost_usd)}
      <span className={styles.detail}>{format.duration(row.spend.wall_clock_s)}</span>
    </div>
  ),
};

const AGE: Column<SearchSummary> = {
  key: "created",
  header: "Started",
  numeric: true,
  sortBy: (row) => row.created_at,
  cell: (row) => <Time at={row.created_at} />,
};

const best = (cell: Column<SearchSummary>["cell"], header: string): Column<SearchSummary> => ({
  key: "score",
  header,
  numeric: true,
  wide: true,
  sortBy: (row) => row.best_score,
  cell,
});

const NARROW: Columns = [
  OP,
  STATE,
  best(
    (row) => (
      <SpeedUps
        value={row.best?.score ?? row.best_score}
        ci95={row.best?.ci95}
        each={row.best?.speedup ?? {}}
        intervals={row.best?.speedup_ci95 ?? {}}
      />
    ),
    "Over the fastest baseline",
  ),
  LIMIT,
  TARGET,
  CANDIDATES,
  COST,
  AGE,
];

/** A column for each baseline where there is room, else all of them below the best. */
export function columns(wide: boolean, baselines: readonly string[]): Columns {
  if (!wide) return NARROW;
  return [
    OP,
    STATE,
    TARGET,
    best((row) => <SpeedUp value={row.best?.score ?? row.best_score} ci95={row.best?.ci95} />, "Best"),
    ...baselines.map(
      (name): Column<SearchSummary> => ({
        key: `over-${name}`,
        header: `vs ${baselineName(name)}`,
        numeric: true,
        cell: ({ best }) => <SpeedUp value={best?.speedup[name]} ci95={best?.speedup_ci95?.[name]} />,
      }),
    ),
    LIMIT,
    CANDIDATES,
    COST,
    AGE,
  ];
}
