import { Link } from "react-router";
import type { CampaignRegion, CampaignSummary } from "../../api/campaigns";
import { SpeedUp } from "../../app/SpeedUp";
import { Badge, type Column, format, StateBadge, Time, Untrusted } from "../../design";
import { fateOf, TONES } from "./bars";
import styles from "./Campaigns.module.css";

/** The stage of a campaign; one that was stopped waits for its client. */
export function Stage({ campaign }: { campaign: CampaignSummary }) {
  const { state, stopped } = campaign;
  if (stopped !== null) return <Badge tone="warn">stopped while {state}</Badge>;
  return <Badge tone={state === "finished" ? "ok" : "accent"}>{state}</Badge>;
}

export const CAMPAIGNS: readonly Column<CampaignSummary>[] = [
  {
    key: "model",
    header: "Model",
    cell: (row) => (
      <Link to={`/campaigns/${encodeURIComponent(row.id)}`} className={styles.name}>
        <Untrusted text={row.model_name} />
      </Link>
    ),
  },
  { key: "state", header: "State", lead: true, cell: (row) => <Stage campaign={row} /> },
  { key: "target", header: "Target", cell: ({ target }) => <Untrusted text={target} /> },
  {
    key: "kept",
    header: "Kernels in place",
    numeric: true,
    cell: ({ kept, searches }) => `${kept} of ${searches}`,
  },
  { key: "before", header: "As it is", numeric: true, cell: (row) => ms(row.before_ms) },
  { key: "compiled", header: "torch.compile", numeric: true, cell: (row) => ms(row.compiled_ms) },
  { key: "after", header: "Now", numeric: true, cell: (row) => ms(row.after_ms) },
  {
    key: "over",
    header: "vs torch.compile",
    numeric: true,
    cell: (row) => <SpeedUp value={row.over_compiled} ci95={row.over_compiled_ci95} />,
  },
  { key: "created", header: "Begun", numeric: true, cell: (row) => <Time at={row.created_at} /> },
];

/** Milliseconds in the unit that reads best. */
export const ms = (value: number | null) => format.micros(value === null ? null : value * 1e3);

export const REGIONS: readonly Column<CampaignRegion>[] = [
  {
    key: "region",
    header: "Region",
    cell: (row) => (
      <div className={styles.stacked}>
        <strong className={styles.name}>
          <Untrusted text={row.operators} />
        </strong>
        <span className={styles.detail}>
          <Untrusted text={row.places[0] ?? ""} />
          {row.count > 1 && ` and ${row.count - 1} more`}
        </span>
      </div>
    ),
  },
  {
    key: "fate",
    header: "Kernel in the model",
    lead: true,
    cell: (row) => <Badge tone={TONES[fateOf(row)]}>{fateOf(row)}</Badge>,
  },
  {
    key: "time",
    header: "Time",
    numeric: true,
    sortBy: (row) => row.time_us,
    cell: (row) => (
      <div className={styles.stacked}>
        {format.micros(row.time_us)}
        <span className={styles.detail}>{format.percent(row.share)}</span>
      </div>
    ),
  },
  { key: "limit", header: "Limit", numeric: true, cell: (row) => format.micros(row.limit_us) },
  {
    key: "search",
    header: "Search",
    cell: ({ search_id, search_state }) =>
      search_id ? (
        <Link to={`/searches/${encodeURIComponent(search_id)}`} aria-label={`Search ${search_id}`}>
          <StateBadge state={search_state ?? "queued"} />
        </Link>
      ) : (
        format.NONE
      ),
  },
  {
    key: "alone",
    header: "Kernel alone",
    numeric: true,
    sortBy: (row) => row.score,
    cell: ({ kernel_id, score, score_ci95 }) =>
      kernel_id ? (
        <Link to={`/kernels/${encodeURIComponent(kernel_id)}`}>
          <SpeedUp value={score} ci95={score_ci95} />
        </Link>
      ) : (
        format.NONE
      ),
  },
  {
    key: "beside",
    header: "The model with it",
    numeric: true,
    sortBy: (row) => row.beside?.speedup,
    cell: ({ beside }) => <SpeedUp value={beside?.speedup} ci95={beside?.ci95} />,
  },
  {
    key: "saved",
    header: "Saves",
    numeric: true,
    sortBy: (row) => row.beside?.saved_us,
    cell: ({ beside }) => format.micros(beside?.saved_us),
  },
  { key: "why", header: "Why", wide: true, cell: ({ reason }) => <Untrusted text={reason ?? ""} /> },
];
