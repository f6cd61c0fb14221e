import { Link } from "react-router";
import type { SearchSummary } from "../../api/queries";
import { baselineName, SpeedUp, SpeedUps } from "../../app/SpeedUp";
import { Tags } from "../../app/Tags";
import { type Column, classes, format, Meter, StateBadge, Time, Untrusted, visible } from "../../design";
import styles from "./Searches.module.css";

type Columns = readonly Column<SearchSummary>[];

const OP: Column<SearchSummary> = {
  key: "op",
  lead: true,
  header: "Search",
  cell: (row) => (
    <div className={classes(styles.op, styles.search)}>
      <Link to={`/searches/${encodeURIComponent(row.id)}`} className={styles.name}>
        <Untrusted text={row.name ?? row.op_name} />
      </Link>
      {row.name && <Untrusted text={row.op_name} />}
      <span className={styles.detail}>
        <Detail row={row} />
      </span>
      <Tags tags={row.tags} />
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
        <Untrusted text={row.language} />
      </span>
    </div>
  ),
};

const MODEL: Column<SearchSummary> = {
  key: "model",
  header: "Model",
  cell: (row) => (
    <div className={styles.op}>
      <span className={styles.model}>
        <Untrusted text={row.model_name || "not named"} />
      </span>
      <span className={styles.detail}>{format.words(row.provider)}</span>
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
      <span className={styles.detail}>{format.count(row.spend.tokens)} tokens</span>
    </div>
  ),
};

const TIME: Column<SearchSummary> = {
  key: "time",
  header: "Time",
  numeric: true,
  sortBy: (row) => row.spend.wall_clock_s,
  cell: (row) => format.duration(row.spend.wall_clock_s),
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
  MODEL,
  CANDIDATES,
  COST,
  TIME,
  AGE,
];

/** The rows that are chosen, and how one is chosen. */
export interface Choosing {
  chosen: ReadonlySet<string>;
  toggle: (id: string) => void;
}

const chooser = ({ chosen, toggle }: Choosing): Column<SearchSummary> => ({
  key: "chosen",
  header: <span className="visually-hidden">Chosen</span>,
  cell: (row) => (
    <input
      type="checkbox"
      aria-label={`Choose ${visible(row.name ?? row.op_name)}, ${visible(row.id)}`}
      className={styles.choose}
      checked={chosen.has(row.id)}
      onChange={() => toggle(row.id)}
    />
  ),
});

/** A column for each baseline where there is room, else all of them below the best. */
export function columns(wide: boolean, baselines: readonly string[], choosing: Choosing): Columns {
  if (!wide) return [chooser(choosing), ...NARROW];
  return [
    chooser(choosing),
    OP,
    STATE,
    TARGET,
    MODEL,
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
    TIME,
    AGE,
  ];
}
