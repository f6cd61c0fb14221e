import { useMemo, useState } from "react";
import { Link, useSearchParams } from "react-router";
import { type ComparedSearch, type ComparisonDocument, useComparison } from "../../api/comparison";
import { useSearches } from "../../api/queries";
import { Loading, Page } from "../../app/Page";
import { SpeedUp } from "../../app/SpeedUp";
import { Tags } from "../../app/Tags";
import {
  ButtonLink,
  Card,
  Checkbox,
  EmptyState,
  Field,
  format,
  IconButton,
  Select,
  StateBadge,
  Untrusted,
  visible,
} from "../../design";
import { paint } from "../../design/plot";
import { MOST_COMPARED } from "../searches/chosen";
import styles from "./Compare.module.css";
import { CurvesPlot } from "./CurvesPlot";
import { labelOf, type TechniqueGroup, toneAt } from "./curves";
import { TechniquesPlot } from "./TechniquesPlot";

/** Searches of one op beside each other; the address names them. */
export default function CompareSearchesPage() {
  const [params, setParams] = useSearchParams();
  const ids = useMemo(() => [...new Set(params.getAll("search"))].slice(0, MOST_COMPARED), [params]);
  const comparison = useComparison(ids);
  const set = (next: readonly string[]) =>
    setParams(
      next.map((id): [string, string] => ["search", id]),
      { replace: true, preventScrollReset: true },
    );
  return (
    <Page title="Compare searches" actions={<ButtonLink to="/">All searches</ButtonLink>}>
      {ids.length < 2 ? (
        <EmptyState
          title="Choose two or more searches"
          action={<ButtonLink to="/">Choose in the list</ButtonLink>}
        >
          <p>
            Searches of one op are compared: their curves, what differed, and what each technique came to.
          </p>
        </EmptyState>
      ) : (
        <Loading query={comparison}>
          {(found) => (
            <div className={styles.page}>
              <Warnings warnings={found.warnings} />
              <Results searches={found.searches} onRemove={(id) => set(ids.filter((one) => one !== id))} />
              <AddOne op={found.op_name} ids={ids} onAdd={(id) => set([...ids, id])} />
              <Card>
                <CurvesPlot searches={found.searches} />
              </Card>
              <Facts found={found} />
              <Card>
                <TechniquesPlot title="Techniques" groups={groupsOf(found.searches)} />
              </Card>
            </div>
          )}
        </Loading>
      )}
    </Page>
  );
}

function groupsOf(searches: readonly ComparedSearch[]): TechniqueGroup[] {
  return searches.map((one, at) => ({ label: labelOf(one, at), techniques: one.techniques }));
}

function Warnings({ warnings }: { warnings: readonly string[] }) {
  if (warnings.length === 0) return null;
  return (
    <ul aria-label="Why speed-ups may not compare" className={styles.warnings}>
      {warnings.map((warning) => (
        <li key={warning}>{warning}</li>
      ))}
    </ul>
  );
}

/** Another search of the op, from the newest fifty. */
function AddOne({ op, ids, onAdd }: { op: string; ids: readonly string[]; onAdd: (id: string) => void }) {
  const others = useSearches({ op, limit: 50 });
  const rows = (others.data?.items ?? []).filter(({ id }) => !ids.includes(id));
  if (ids.length >= MOST_COMPARED || rows.length === 0) return null;
  return (
    <Field label="Add a search">
      <Select value="" onChange={(event) => event.currentTarget.value && onAdd(event.currentTarget.value)}>
        <option value="">Choose a search of {visible(op)}…</option>
        {rows.map((row) => (
          <option key={row.id} value={row.id}>
            {visible(
              `${row.name ?? row.op_name}, ${row.state}, ${format.ratio(row.best_score)}, ${row.model_name ?? row.provider}, ${format.moment(row.created_at)}`,
            )}
          </option>
        ))}
      </Select>
    </Field>
  );
}

interface Line {
  name: string;
  value: (one: ComparedSearch) => React.ReactNode;
}

const LINES: readonly Line[] = [
  { name: "State", value: ({ search }) => <StateBadge state={search.state} /> },
  {
    name: "Best",
    value: ({ search: { best } }) =>
      best ? (
        <div className={styles.head}>
          <SpeedUp value={best.score} ci95={best.ci95} />
          <StateBadge state={best.verified ? "verified" : "screened"} />
        </div>
      ) : (
        "nothing accepted yet"
      ),
  },
  { name: "Of the physical limit", value: ({ search }) => format.percent(search.best?.limit_fraction) },
  { name: "Idea", value: ({ search }) => <Untrusted text={search.best?.title ?? format.NONE} /> },
  { name: "Candidates", value: ({ search }) => format.count(search.spend.candidates) },
  {
    name: "Spent",
    value: ({ search: { spend } }) => `${format.money(spend.cost_usd)}, ${format.count(spend.tokens)} tokens`,
  },
  { name: "Time", value: ({ search }) => format.duration(search.spend.wall_clock_s) },
];

function Results({
  searches,
  onRemove,
}: {
  searches: readonly ComparedSearch[];
  onRemove: (id: string) => void;
}) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard
    <section aria-label="Results" className={styles.scroll} tabIndex={0}>
      <table className={styles.table}>
        <caption className="visually-hidden">Results of the searches</caption>
        <thead>
          <Heads searches={searches} onRemove={onRemove} />
        </thead>
        <tbody>
          {LINES.map(({ name, value }) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              {searches.map((one) => (
                <td key={one.search.id}>{value(one)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Heads({
  searches,
  onRemove,
}: {
  searches: readonly ComparedSearch[];
  onRemove?: (id: string) => void;
}) {
  return (
    <tr>
      <td />
      {searches.map(({ search }, at) => (
        <th key={search.id} scope="col">
          <div className={styles.head}>
            <span className={styles.number}>
              <span className={styles.swatch} style={{ background: paint(toneAt(at)) }} />
              {at + 1}
              <Link to={`/searches/${encodeURIComponent(search.id)}`}>
                <Untrusted text={search.name ?? search.op_name} />
              </Link>
              {onRemove && searches.length > 2 && (
                <IconButton
                  label={`Leave out ${visible(search.name ?? search.id)}`}
                  icon="✕"
                  onClick={() => onRemove(search.id)}
                />
              )}
            </span>
            {onRemove && (
              <>
                <span className={styles.detail}>
                  <Untrusted text={search.model_name ?? search.provider ?? ""} />
                </span>
                <Tags tags={search.tags} />
              </>
            )}
          </div>
        </th>
      ))}
    </tr>
  );
}

/** What differed, and on demand what did not. */
function Facts({ found }: { found: ComparisonDocument }) {
  const [all, setAll] = useState(false);
  const shown = found.facts.filter(({ differs }) => all || differs);
  return (
    <Card>
      <div className={styles.page}>
        <div className={styles.tools}>
          <h2>What differed</h2>
          <Checkbox
            label={`Also the ${found.facts.filter(({ differs }) => !differs).length} not known to differ`}
            checked={all}
            onChange={(event) => setAll(event.currentTarget.checked)}
          />
        </div>
        {shown.length === 0 ? (
          <p>No setting, device or version is known to differ.</p>
        ) : (
          // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard
          <section aria-label="What differed" className={styles.scroll} tabIndex={0}>
            <table className={styles.table}>
              <thead>
                <Heads searches={found.searches} />
              </thead>
              <tbody>
                {shown.map(({ name, values }) => (
                  <tr key={name}>
                    <th scope="row">
                      <Untrusted text={name} />
                    </th>
                    {values.map((value, at) => (
                      <td key={found.searches[at]?.search.id}>
                        <Untrusted text={value ?? format.NONE} />
                      </td>
                    ))}
                  </tr>
                ))}
              </tbody>
            </table>
          </section>
        )}
      </div>
    </Card>
  );
}
