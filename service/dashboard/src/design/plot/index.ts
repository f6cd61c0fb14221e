/**
 * Plots: SVG on d3-scale and d3-shape. A `Plot` owns axes, pointer, keys and the table; marks stand within it and take
 * values, not pixels.
 *
 *   <Plot title desc x={AxisSpec} y={AxisSpec} height? legend table targets tip onSelect onBrush actions>marks</Plot>
 *     AxisSpec   {kind: "linear" | "log" | "duration", domain: [low, high], label, format?, ticks?, whole?}
 *                {kind: "band", domain: [key, ...], label, format?}      rows on y (from the top), columns on x
 *     Give `x` and `y` from useMemo: new objects are new scales.
 *     legend     [{label, tone, shape?}]
 *     table      {columns: [{header, numeric?}], rows: [[cell, ...]]}    every plot has one: it is what a screen reader reads
 *     targets    [{key, x: value | [from, to], y: value, lane?, ...yours}]   what hovering and the arrow keys find
 *     tip        (target) => ReactNode; onSelect (target) for a press or Enter; onBrush(from, to) for a span dragged over
 *
 *   <StepLine points=[{x, y, low?, high?}] tone />                       best so far, with its interval behind
 *   <Line points=[{x, y}] tone dashed />                                 ceilings of a roofline
 *   <Dots dots=[{key, x, y, tone?, shape?, radius?, label?}] />          shape: circle ring cross square diamond
 *   <Intervals marks=[{key, at, low, high, value?, tone?, lane?}] along="x" />  `at` is the row (along x) or the column (along y)
 *   <Bars bars=[{key, row, from, to, tone?, hatched?, lane?: [0, 0.5], label?}] />
 *   <Rule x= | y= label tone />                                          a reference across the plot
 *
 *   extent(values, pad) and logExtent(values, factor) give a domain, or null where there is no value.
 *   tone: ok bad warn wait dup accent text muted border. Untrusted strings may be given as labels: they are made visible.
 */
export { type PlotTone, paint } from "./context";
export {
  type BarMark,
  Bars,
  type DotMark,
  type DotShape,
  Dots,
  Intervals,
  Line,
  type Point,
  Rule,
  StepLine,
} from "./marks";
export type { Target } from "./nearest";
export { Plot } from "./Plot";
export type { PlotTableProps } from "./PlotTable";
export { type AxisSpec, extent, logExtent } from "./scales";
