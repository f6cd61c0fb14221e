import { useMemo, useState } from "react";
import { useNavigate } from "react-router";
import type { ComparedSearch } from "../../api/comparison";
import { format, StateBadge, visible } from "../../design";
import { Dots, Plot, Rule, StepLine, type Target } from "../../design/plot";
import { type Axis, LABELS, speedupSpec, xSpec } from "../search/progress/axes";
import { Choice } from "../search/progress/Choice";
import { axesOf, type CurvePoint, curvesOf, labelOf, toneAt } from "./curves";

interface PointTarget extends Target {
  point: CurvePoint;
  at: number;
}

/** The best so far of every search on one pair of axes. */
export function CurvesPlot({ searches }: { searches: readonly ComparedSearch[] }) {
  const axes = axesOf(searches);
  const [asked, setAxis] = useState<Axis>("candidates");
  const axis = axes.includes(asked) ? asked : "candidates";
  const navigate = useNavigate();
  const { curves, xDomain, yDomain } = useMemo(() => curvesOf(searches, axis), [searches, axis]);
  const x = useMemo(() => xSpec(axis, xDomain, "Since each began"), [axis, xDomain]);
  const y = useMemo(() => speedupSpec("linear", yDomain), [yDomain]);
  const targets = useMemo<PointTarget[]>(
    () => curves.flatMap(({ dots }) => dots.map(({ key, x, y, point, at }) => ({ key, x, y, point, at }))),
    [curves],
  );
  const name = (at: number) => {
    const one = searches[at];
    return one ? visible(labelOf(one, at)) : String(at + 1);
  };
  return (
    <Plot<PointTarget>
      title="Best so far"
      desc={inWords(searches)}
      actions={<Choice label="Against" options={axes} labels={LABELS} value={axis} onChange={setAxis} />}
      x={x}
      y={y}
      legend={[
        ...searches.map((_, at) => ({ label: name(at), tone: toneAt(at), shape: "line" as const })),
        { label: "Verified", tone: "muted", shape: "diamond" },
        { label: "Screened", tone: "muted", shape: "ring" },
      ]}
      targets={targets}
      tip={({ point, at }) => (
        <>
          <strong>{name(at)}</strong>
          <span>
            {format.ratio(point.score)} {point.seq != null && `by #${point.seq} `}
            {point.node_id && <StateBadge state={point.verified ? "verified" : "screened"} />}
          </span>
          <span>
            {format.count(point.candidates)} candidates, {format.duration(point.elapsed_s)}
            {point.cost_usd != null && `, ${format.money(point.cost_usd)}`}
          </span>
        </>
      )}
      onSelect={({ point, at }) => {
        const id = searches[at]?.search.id;
        if (id && point.node_id)
          void navigate(`/searches/${encodeURIComponent(id)}?node=${encodeURIComponent(point.node_id)}`);
      }}
      table={{
        columns: [
          { header: "Search" },
          { header: "Candidates", numeric: true },
          { header: "After", numeric: true },
          { header: "Cost", numeric: true },
          { header: "Best", numeric: true },
          { header: "Measured" },
          { header: "Node" },
        ],
        rows: searches.flatMap(({ curve }, at) =>
          curve.map((point) => [
            name(at),
            format.count(point.candidates),
            format.duration(point.elapsed_s),
            format.money(point.cost_usd),
            format.ratio(point.score),
            point.verified ? "verified" : "screened",
            point.seq == null ? "last verdict" : `#${point.seq}`,
          ]),
        ),
      }}
    >
      <Rule y={1} label="the fastest baseline" />
      {curves.map(({ tone, steps }, at) => (
        <StepLine key={searches[at]?.search.id} points={steps} tone={tone} />
      ))}
      {curves.map(({ dots }, at) => (
        <Dots key={searches[at]?.search.id} dots={dots} />
      ))}
    </Plot>
  );
}

function inWords(searches: readonly ComparedSearch[]): string {
  return searches
    .map((one, at) => {
      const last = one.curve.at(-1);
      return `${labelOf(one, at)}: ${last ? format.ratio(last.score) : "nothing accepted"}`;
    })
    .join("; ");
}
