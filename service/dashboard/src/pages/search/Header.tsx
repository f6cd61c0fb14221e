import { Link } from "react-router";
import { ProblemError } from "../../api/problem";
import type { SearchDocument } from "../../api/queries";
import { baselineName } from "../../app/SpeedUp";
import { Tags } from "../../app/Tags";
import { ButtonLink, Card, EmptyState, ErrorNotice, format, StateBadge, Time, Untrusted } from "../../design";
import { ENDED } from "./ended";
import { allowances } from "./limits";
import { Meters } from "./Meters";
import styles from "./Search.module.css";
import { Waiting } from "./Waiting";

/** What a search is, how it stands and what it has cost. */
export function Header({ search }: { search: SearchDocument }) {
  return (
    <div className={styles.header}>
      <About search={search} />
      {search.archived_at != null && (
        <p className={styles.note}>
          Archived <Time at={search.archived_at} />: lists leave it out.
        </p>
      )}
      <Tags tags={search.tags} />
      {search.notes && (
        <p className={styles.notes}>
          <Untrusted text={search.notes} />
        </p>
      )}
      {search.state === "failed" && <Failure search={search} />}
      <Waiting items={search.waiting_for} />
      <Card>
        <div className={styles.figures}>
          <Best search={search} />
          <Meters allowances={allowances(search)} />
        </div>
      </Card>
    </div>
  );
}

function About({ search }: { search: SearchDocument }) {
  return (
    <ul className={styles.about}>
      {search.name && (
        <li>
          <Untrusted text={search.op_name} />
        </li>
      )}
      <li>
        <Untrusted text={search.target} />
      </li>
      <li>
        <Untrusted text={search.language} />
      </li>
      <li>
        <Untrusted text={format.words(search.policy_name)} />
      </li>
      <li>
        <Untrusted
          text={search.model_name ? `${search.model_name} (${search.provider})` : `${search.provider}`}
        />
      </li>
      <li>
        round {search.round}, {format.count(search.nodes)} {search.nodes === 1 ? "node" : "nodes"}
      </li>
      <li>
        started <Time at={search.created_at} />
      </li>
      <Ending search={search} />
    </ul>
  );
}

function Best({ search }: { search: SearchDocument }) {
  const { best } = search;
  const word = ENDED.has(search.state) ? "best" : "best so far";
  if (!best || best.score === null) {
    return (
      <div className={styles.best}>
        <p className={styles.bestScore}>
          {format.NONE} <span className={styles.bestLabel}>{word}</span>
        </p>
        <p className={styles.note}>
          {search.baselines.length
            ? "No candidate was accepted yet. The baselines are measured."
            : "No candidate was accepted yet, and the baselines are not measured."}
        </p>
      </div>
    );
  }
  return (
    <div className={styles.best}>
      <p className={styles.bestScore}>
        {format.ratio(best.score)} <span className={styles.interval}>{interval(best.ci95)}</span>{" "}
        <span className={styles.bestLabel}>{word}, over the fastest baseline</span>{" "}
        <StateBadge state={best.verified ? "verified" : "screened"} />
      </p>
      <p>
        <Link to={`?node=${encodeURIComponent(best.node_id)}`} preventScrollReset>
          #{best.seq} <Untrusted text={best.title ?? "the candidate"} />
        </Link>
      </p>
      <dl className={styles.baselines}>
        {Object.entries(best.speedup).map(([baseline, ratio]) => (
          <div key={baseline}>
            <dt>
              over <Untrusted text={baselineName(baseline)} />
            </dt>
            <dd>{format.speedup(ratio, best.speedup_ci95?.[baseline])}</dd>
          </div>
        ))}
        <div>
          <dt>of the physical limit</dt>
          <dd>{format.percent(best.limit_fraction)}</dd>
        </div>
      </dl>
    </div>
  );
}

function interval(ci95: readonly number[] | null | undefined): string {
  const [low, high] = ci95 ?? [];
  return low === undefined || high === undefined ? "" : `[${low.toFixed(2)}, ${high.toFixed(2)}]`;
}

/** Why a search ended, in its own words. */
function Ending({ search }: { search: SearchDocument }) {
  if (!search.reason || !["finished", "cancelled"].includes(search.state)) return null;
  return (
    <li>
      {search.state}: <Untrusted text={search.reason} />
    </li>
  );
}

function Failure({ search }: { search: SearchDocument }) {
  const at = search.problem?.field;
  const errors = at ? [{ field: at, found: search.problem?.found, expected: search.problem?.expected }] : [];
  return (
    <>
      <ErrorNotice
        error={
          new ProblemError(
            0,
            "about:blank",
            "The search failed",
            search.reason ?? "No reason is known.",
            errors,
          )
        }
        what="The search failed"
        safe={
          search.kernels.length
            ? "What it found until then is kept, with its kernels."
            : "What it found until then is kept."
        }
      />
      <EmptyState title="What to do next" action={<ButtonLink to="/searches/new">New search</ButtonLink>}>
        {search.problem
          ? "Mend the field that is named above in the op or the request, and submit it again."
          : "The reason says what went wrong. Its tree and its story show how far it came; submit it again when the cause is mended."}
      </EmptyState>
    </>
  );
}
