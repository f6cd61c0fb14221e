import { format, Untrusted } from "../../../design";
import { Legend, type LegendItem } from "../../../design/plot";
import { named, type StepScale, type ValueSummary } from "./swept";

/** What the configurations with one value, or with a pair of them, came to. */
export function SummaryTip({ title, count, mean, best }: Omit<ValueSummary, "value"> & { title: string }) {
  return (
    <>
      <strong>
        <Untrusted text={title} />
      </strong>
      <span>
        {format.count(count)} {count === 1 ? "configuration" : "configurations"}, mean {format.ratio(mean)}
      </span>
      <span>
        best {format.ratio(best.ratio)}: #{best.candidate.seq} with <Untrusted text={named(best.values)} />
      </span>
    </>
  );
}

/** The colours of times, as factors of the chosen configuration's. */
export function StepsLegend({ steps, also = [] }: { steps: StepScale; also?: readonly LegendItem[] }) {
  return <Legend items={[...stepItems(steps), ...also]} />;
}

export function stepItems({ steps }: StepScale): LegendItem[] {
  return steps.map(({ tone, from, to }, at) => ({
    label: `${at === 0 ? "Time up to" : `${format.ratio(from)} to`} ${format.ratio(to)}`,
    tone,
  }));
}
