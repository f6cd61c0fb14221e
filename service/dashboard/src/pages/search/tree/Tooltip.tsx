import { Badge, format, Untrusted } from "../../../design";
import type { Point } from "./camera";
import { toneOfRow } from "./kinds";
import type { TreeRow } from "./rows";
import styles from "./Tooltip.module.css";
import { standing, titleOf } from "./words";

interface TooltipProps {
  row: TreeRow;
  spot: Point & { r: number };
  best: boolean;
  host: HTMLElement | null;
}

const WIDTH = 280;
const HEIGHT = 130;

/** What a node is, beside it, for the pointer; the keyboard has the line that is read aloud. */
export function Tooltip({ row, spot, best, host }: TooltipProps) {
  const room = host?.clientWidth ?? WIDTH;
  const left = Math.max(8, Math.min(spot.x - 20, room - WIDTH - 8));
  const gap = spot.r + 12;
  const above = spot.y + gap + HEIGHT > (host?.clientHeight ?? 0);
  const top = above ? { bottom: (host?.clientHeight ?? 0) - spot.y + gap } : { top: spot.y + gap };
  return (
    <div className={styles.tip} style={{ left, ...top }} aria-hidden="true">
      <p className={styles.title}>
        <span className={styles.number}>#{row.seq}</span> <Untrusted text={titleOf(row)} />
      </p>
      <p className={styles.line}>
        <Badge tone={toneOfRow(row)}>
          <Untrusted text={standing(row)} />
        </Badge>
        {best && <Badge tone="accent">best</Badge>}
        {row.mark && <Badge tone={row.mark === "banned" ? "bad" : "accent"}>{row.mark}</Badge>}
      </p>
      {row.score != null && (
        <p>
          {format.speedup(row.score, row.ci95)}
          {row.limit_fraction != null && `, ${format.percent(row.limit_fraction)} of the limit`}
        </p>
      )}
      {row.technique && (
        <p className={styles.quiet}>
          <Untrusted text={format.words(row.technique)} />, round {row.round}
        </p>
      )}
    </div>
  );
}
