import { useId, useMemo, useState } from "react";
import { format, Select, visible } from "../../../design";
import { type AxisSpec, Cells, Plot, type Target } from "../../../design/plot";
import { Choice } from "../progress/Choice";
import { useView } from "../view";
import styles from "./Mattered.module.css";
import { SummaryTip, stepItems } from "./SummaryTip";
import { type Cell, type Configuration, cellsOf, stepsOf, summarise } from "./swept";

const ROW = 36;
const LABELS = { mean: "Mean", best: "Best" } as const;
type Measure = keyof typeof LABELS;

function ratioOf(cell: Cell, measure: Measure): number {
  return measure === "mean" ? cell.mean : cell.best.ratio;
}

interface CellTarget extends Target {
  cell: Cell;
}

/** A heat map of two tunables: the time of the configurations with each pair of values. */
export function PairPlot({
  names,
  configurations,
}: {
  names: readonly string[];
  configurations: readonly Configuration[];
}) {
  const { setNode } = useView();
  const [across, setAcross] = useState(names[0] ?? "");
  const [down, setDown] = useState(names[1] ?? "");
  const [measure, setMeasure] = useState<Measure>("mean");
  const cells = useMemo(() => cellsOf(configurations, across, down), [configurations, across, down]);
  const steps = useMemo(() => stepsOf(cells.map((cell) => ratioOf(cell, measure))), [cells, measure]);
  const x = useMemo(() => axisOf(configurations, across), [configurations, across]);
  const y = useMemo(() => axisOf(configurations, down, true), [configurations, down]);
  /** Of two selects neither may name the tunable of the other: they change places. */
  function choose(set: (name: string) => void, other: string, setOther: (name: string) => void, own: string) {
    return (name: string) => {
      if (name === other) setOther(own);
      set(name);
    };
  }
  return (
    <Plot<CellTarget>
      title="Heat map of two tunables"
      desc={describe(cells, across, down, measure)}
      actions={
        <>
          <Pick
            label="Across"
            names={names}
            value={across}
            onChange={choose(setAcross, down, setDown, across)}
          />
          <Pick label="Down" names={names} value={down} onChange={choose(setDown, across, setAcross, down)} />
          <Choice
            label="Of the configurations of a pair"
            options={["mean", "best"]}
            labels={LABELS}
            value={measure}
            onChange={setMeasure}
          />
        </>
      }
      x={x}
      y={y}
      height={y.domain.length * ROW}
      legend={stepItems(steps)}
      targets={cells.map((cell) => ({ key: `${cell.x} ${cell.y}`, x: cell.x, y: cell.y, cell }))}
      tip={({ cell }) => <SummaryTip title={`${across}=${cell.x}, ${down}=${cell.y}`} {...cell} />}
      onSelect={({ cell }) => setNode(cell.best.candidate.node_id)}
      table={{
        columns: [
          { header: visible(across), numeric: true },
          { header: visible(down), numeric: true },
          { header: "Configurations", numeric: true },
          { header: "Mean time", numeric: true },
          { header: "Best time", numeric: true },
        ],
        rows: cells.map((cell) => [
          cell.x,
          cell.y,
          format.count(cell.count),
          format.ratio(cell.mean),
          format.ratio(cell.best.ratio),
        ]),
      }}
    >
      <Cells
        cells={cells.map((cell) => ({
          key: `${cell.x} ${cell.y}`,
          x: cell.x,
          y: cell.y,
          tone: steps.of(ratioOf(cell, measure)),
          label: format.ratio(ratioOf(cell, measure)),
        }))}
      />
    </Plot>
  );
}

function describe(cells: readonly Cell[], across: string, down: string, measure: Measure): string {
  const ranked = [...cells].sort((a, b) => ratioOf(a, measure) - ratioOf(b, measure));
  const [first, last] = [ranked[0], ranked.at(-1)];
  if (!first || !last) return "No pair was timed.";
  const say = (cell: Cell) =>
    `${visible(across)}=${cell.x} and ${visible(down)}=${cell.y} with ${format.ratio(ratioOf(cell, measure))}`;
  return `${LABELS[measure]} time over the chosen one's of ${cells.length} pairs: the least has ${say(first)}, the greatest ${say(last)}.`;
}

function Pick({
  label,
  names,
  value,
  onChange,
}: {
  label: string;
  names: readonly string[];
  value: string;
  onChange: (name: string) => void;
}) {
  const id = useId();
  return (
    <span className={styles.pick}>
      <label htmlFor={id}>{label}</label>
      <Select id={id} value={value} onChange={(event) => onChange(event.target.value)}>
        {names.map((name) => (
          <option key={name} value={name}>
            {visible(name)}
          </option>
        ))}
      </Select>
    </span>
  );
}

/** The values of a tunable as columns, or as rows with the greatest above. */
function axisOf(configurations: readonly Configuration[], name: string, rows = false) {
  const values = summarise(configurations, name).map(({ value }) => String(value));
  return {
    kind: "band",
    domain: rows ? values.reverse() : values,
    label: name,
  } satisfies AxisSpec;
}
