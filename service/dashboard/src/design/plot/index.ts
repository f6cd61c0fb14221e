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
 *   <Points points=[{x, y, shift?}] tone radius? />                      thousands of dots, in one path
 *   <Strands strands=[[point, ...], ...] tone faint? />                  thousands of lines, in one path
 *   <Uprights axes=[{key, ticks: [{at, label}]}] />                      an axis of its own at each column of a band axis on x
 *   <Cells cells=[{key, x, y, tone, label?}] />                          of two band axes: a heat map
 *   <Rule x= | y= label tone />                                          a reference across the plot
 *
 *   extent(values, pad) and logExtent(values, factor) give a domain, or null where there is no value.
 *   tone: ok bad warn wait dup accent text muted border, step1 to step5. Untrusted strings may be given as labels: they are made visible.
 */
export { type PlotTone, paint, STEPS } from "./context";
export { Legend, type LegendItem } from "./Legend";
export { type CellMark, Cells, Points, type Shifted, Strands, type UprightAxis, Uprights } from "./many";
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
