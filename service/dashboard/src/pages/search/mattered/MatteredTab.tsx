import { useMemo, useState } from "react";
import { type MatteredDocument, useMattered } from "../../../api/mattered";
import { useProgress } from "../../../api/progress";
import { Loading } from "../../../app/Page";
import { Card, EmptyState, Field, format, Select, Untrusted, visible } from "../../../design";
import { TechniquesPlot } from "../../compare/TechniquesPlot";
import { ImportancePlot } from "./ImportancePlot";
import styles from "./Mattered.module.css";
import { PairPlot } from "./PairPlot";
import { ParallelPlot } from "./ParallelPlot";
import { SlicePlots } from "./SlicePlots";
import { setsOf, stepsOf } from "./swept";

/** What the search's techniques came to, and what the numbers that candidates left open to the judge did. */
export default function MatteredTab({
  searchId,
  ended,
  updatedAt,
}: {
  searchId: string;
  ended: boolean;
  updatedAt: number;
}) {
  const progress = useProgress(searchId);
  const mattered = useMattered(searchId, ended, updatedAt);
  return (
    <div className={styles.stack}>
      <Loading query={progress}>
        {({ techniques }) =>
          techniques.length === 0 ? (
            <EmptyState title="No candidate was judged yet">
              What each technique came to is drawn here from the first verdict on.
            </EmptyState>
          ) : (
            <Card>
              <TechniquesPlot title="What mattered: techniques" groups={[{ label: "", techniques }]} />
              {mattered.data && <TechniqueShare {...mattered.data.techniques} />}
            </Card>
          )
        }
      </Loading>
      <Loading query={mattered}>{(data) => <Tunables mattered={data} />}</Loading>
    </div>
  );
}

/** How much of the differences between candidates the choice of the technique explains. */
function TechniqueShare({ candidates, share, by_chance, unclear }: MatteredDocument["techniques"]) {
  if (unclear)
    return (
      <p className={styles.note}>
        How much the technique matters is not told: <Untrusted text={unclear} />.
      </p>
    );
  return (
    <p className={styles.note}>
      The technique explains {format.percent(share)} of the variance of the logarithm of gain over what was
      built on, of {format.count(candidates)} accepted candidates; {format.percent(by_chance)} is expected if
      it did nothing.
    </p>
  );
}

function Tunables({ mattered }: { mattered: MatteredDocument }) {
  const { tunables, sweeps, not_sent, not_counted } = mattered;
  if (tunables.sweeps === 0)
    return (
      <EmptyState title="No candidate was swept">
        A candidate may leave numbers open, such as a block size; the judge then times its configurations, and
        what mattered among them is drawn here.
      </EmptyState>
    );
  return (
    <>
      <Card>
        <ImportancePlot importance={tunables} />
        {tunables.unclear === null && tunables.sweeps > 1 && (
          <p className={styles.note}>
            Within each candidate, over {format.count(tunables.sweeps - tunables.unused)} sweeps, each of
            which counts once; tunables of the same name count as one.
            {tunables.unused > 0 &&
              ` ${format.count(tunables.unused)} more could tell nothing: of one tunable alone, or of too few configurations.`}
          </p>
        )}
      </Card>
      {sweeps.length > 0 && <Configurations mattered={mattered} />}
      {not_sent > 0 && (
        <p className={styles.note}>
          Configurations are drawn of the {format.count(sweeps.length)} fastest candidates with tunables; the
          sweeps of {format.count(not_sent)} slower ones count above, and are not drawn.
        </p>
      )}
      {not_counted > 0 && (
        <p className={styles.note}>
          The sweeps of {format.count(not_counted)} still slower candidates are neither counted nor drawn.
        </p>
      )}
    </>
  );
}

const ALL = "all";

/** The configurations of candidates with the same tunables: on axes side by side, one by one, and two by two. */
function Configurations({ mattered: { sweeps, tunables } }: { mattered: MatteredDocument }) {
  const sets = useMemo(
    () =>
      setsOf(
        sweeps,
        tunables.tunables.map(({ name }) => name),
      ),
    [sweeps, tunables],
  );
  const [key, setKey] = useState<string | null>(null);
  const [node, setNode] = useState(ALL);
  const set = sets.find((one) => one.key === key) ?? sets[0];
  const one = set?.candidates.find(({ node_id }) => node_id === node);
  const shown = useMemo(
    () => (set?.configurations ?? []).filter(({ candidate }) => !one || candidate === one),
    [set, one],
  );
  const steps = useMemo(() => stepsOf(shown.map(({ ratio }) => ratio)), [shown]);
  if (!set) return null;
  return (
    <section className={styles.stack} aria-label="Configurations">
      <div className={styles.chooser}>
        {sets.length > 1 && (
          <Field label="Tunables">
            <Select value={set.key} onChange={(event) => setKey(event.target.value)}>
              {sets.map(({ key: value, names, candidates }) => (
                <option key={value} value={value}>
                  {visible(names.join(", "))} ({format.count(candidates.length)}{" "}
                  {candidates.length === 1 ? "candidate" : "candidates"})
                </option>
              ))}
            </Select>
          </Field>
        )}
        <Field label="Candidates">
          <Select value={one ? node : ALL} onChange={(event) => setNode(event.target.value)}>
            <option value={ALL}>All {format.count(set.candidates.length)}</option>
            {set.candidates.map(({ node_id, seq, title, score }) => (
              <option key={node_id} value={node_id}>
                #{seq} {visible(title ?? "")} {score === null ? "" : `(${format.ratio(score)})`}
              </option>
            ))}
          </Select>
        </Field>
      </div>
      <Card>
        <ParallelPlot
          key={`${set.key} ${one?.node_id ?? ALL}`}
          names={set.names}
          configurations={shown}
          steps={steps}
        />
      </Card>
      <Card>
        <SlicePlots names={set.names} configurations={shown} steps={steps} />
      </Card>
      {set.names.length > 1 && (
        <Card>
          <PairPlot key={set.key} names={set.names} configurations={shown} />
        </Card>
      )}
    </section>
  );
}
