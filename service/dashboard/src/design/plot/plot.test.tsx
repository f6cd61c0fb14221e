import { fireEvent, render, screen, within } from "@testing-library/react";
import { expect, test, vi } from "vitest";
import { Bars, Dots, extent, logExtent, Plot } from "./index";
import { boxOf, nearest, readingOrder } from "./nearest";
import { heightFor } from "./Plot";
import { type AxisSpec, durationTicks, logTicks, makeScale } from "./scales";

const X: AxisSpec = { kind: "linear", domain: [0, 10], label: "Candidates" };
const Y: AxisSpec = { kind: "linear", domain: [0, 2], label: "Speed-up" };

test("an extent passes over what is missing and leaves the room that is asked for", () => {
  expect(extent([3, null, 1, undefined, Number.NaN])).toEqual([1, 3]);
  expect(extent([0, 10], 0.1)).toEqual([-1, 11]);
  expect(extent([null])).toBeNull();
  expect(logExtent([0, -1, 10, 1000], 2)).toEqual([5, 2000]);
  expect(logExtent([0])).toBeNull();
});

test("ticks of a logarithmic axis are round, and as many as there is room for", () => {
  expect(logTicks([1, 1000], 4)).toEqual([1, 10, 100, 1000]);
  expect(logTicks([1, 100], 7)).toEqual([1, 2, 5, 10, 20, 50, 100]);
  expect(logTicks([0.001, 0.01], 4)).toEqual([0.001, 0.002, 0.005, 0.01]);
  expect(logTicks([11, 18], 4).length).toBeGreaterThan(1);
  const many = logTicks([1e-3, 1e12], 5);
  expect(many.length).toBeLessThanOrEqual(5);
  expect(many.every((value) => value >= 1e-3 && value <= 1e12)).toBe(true);
});

test("what is counted has ticks at whole numbers alone", () => {
  const counted = { kind: "linear", domain: [0, 3], label: "Candidates", whole: true } as const;
  expect(makeScale(counted, [0, 1200], 60).ticks.map((tick) => tick.label)).toEqual(["0", "1", "2", "3"]);
});

test("ticks of time are those of a clock", () => {
  expect(durationTicks([0, 60], 4)).toEqual([0, 15, 30, 45, 60]);
  expect(durationTicks([100, 4000], 4)).toEqual([1800, 3600]);
  expect(durationTicks([0, 1], 4).length).toBeGreaterThan(2);
});

test("a scale survives a domain that has no width, or no positive value", () => {
  const flat = makeScale({ kind: "linear", domain: [5, 5], label: "" }, [0, 100], 50);
  expect(flat.at(5)).toBe(0);
  const zero = makeScale({ kind: "log", domain: [0, 0], label: "" }, [0, 100], 50);
  expect(Number.isFinite(zero.at(1))).toBe(true);
  expect(flat.invert(-50)).toBe(5);
});

test("the nearest target is found within reach, and a bar by its whole length", () => {
  const area = {
    x: makeScale(X, [0, 100], 50),
    y: makeScale({ kind: "band", domain: ["a", "b"], label: "" }, [0, 100], 50),
  };
  const bars = [
    { key: "1", x: [0, 4] as const, y: "a" },
    { key: "2", x: [6, 10] as const, y: "a" },
    { key: "3", x: [0, 10] as const, y: "b" },
  ];
  expect(nearest(bars, area, 20, area.y.at("a"))?.key).toBe("1");
  expect(nearest(bars, area, 95, area.y.at("a"))?.key).toBe("2");
  expect(nearest(bars, area, 300, 300)).toBeNull();
  expect(readingOrder(bars, area).map((bar) => bar.key)).toEqual(["1", "3", "2"]);
  expect(boxOf({ key: "p", x: 5, y: "a" }, area)).toMatchObject({ left: 50, right: 50 });
});

test("a plot says what it shows, visits its targets by keyboard and gives them as a table", () => {
  const onSelect = vi.fn();
  const targets = [
    { key: "late", x: 8, y: 1.5, title: "tiles" },
    { key: "early", x: 2, y: 1, title: "vectors" },
  ];
  render(
    <Plot
      title="Best so far"
      desc="It rose from 1x to 1.5x."
      x={X}
      y={Y}
      targets={targets}
      tip={(target) => target.title}
      onSelect={onSelect}
      table={{ columns: [{ header: "Idea" }], rows: [["vectors"], ["tiles"]] }}
    >
      <Dots dots={targets.map(({ key, x, y }) => ({ key, x, y, label: "evil\u202e" }))} />
    </Plot>,
  );
  expect(screen.getByRole("img", { name: /It rose from 1x/ })).toBeInTheDocument();
  expect(screen.getByRole("img").textContent).not.toContain("\u202e");
  const stop = screen.getByRole("application");
  fireEvent.keyDown(stop, { key: "ArrowRight" });
  expect(stop).toHaveTextContent("vectors");
  fireEvent.keyDown(stop, { key: "ArrowRight" });
  fireEvent.keyDown(stop, { key: "Enter" });
  expect(onSelect).toHaveBeenCalledWith(targets[0]);
  fireEvent.keyDown(stop, { key: "Escape" });
  expect(stop).not.toHaveTextContent("tiles");
});

test("a bar is never too thin to be seen", () => {
  const rows: AxisSpec = { kind: "band", domain: ["w"], label: "Worker" };
  const { container } = render(
    <Plot title="Work" desc="" x={X} y={rows}>
      <Bars bars={[{ key: "short", row: "w", from: 1, to: 1 }]} />
    </Plot>,
  );
  const bars = [...container.querySelectorAll("rect")].filter((rect) => rect.style.color);
  expect(bars.map((rect) => rect.getAttribute("width"))).toEqual(["2"]);
});

test("a plot opens as large as the window, and closes where something in it is opened", () => {
  const onSelect = vi.fn();
  const targets = [{ key: "one", x: 2, y: 1 }];
  render(
    <Plot title="Best so far" desc="" x={X} y={Y} targets={targets} tip={() => "tiles"} onSelect={onSelect}>
      <Dots dots={targets} />
    </Plot>,
  );
  fireEvent.click(screen.getByRole("button", { name: "Enlarge: Best so far" }));
  const dialog = screen.getByRole("dialog", { name: "Best so far" });
  const large = within(dialog).getByRole("application");
  expect(within(dialog).queryByRole("button", { name: /Enlarge/ })).toBeNull();
  fireEvent.keyDown(large, { key: "ArrowRight" });
  expect(large).toHaveTextContent("tiles");
  fireEvent.keyDown(large, { key: "Enter" });
  expect(onSelect).toHaveBeenCalledWith(targets[0]);
  expect(screen.queryByRole("dialog")).toBeNull();
});

test("a plot is higher where it is wider, within bounds", () => {
  expect([300, 1000, 3000].map(heightFor)).toEqual([240, 360, 520]);
});

test("what shares a row is found in its own lane", () => {
  const area = {
    x: makeScale(X, [0, 100], 50),
    y: makeScale({ kind: "band", domain: ["a"], label: "" }, [0, 100], 50),
  };
  const lanes = [
    { key: "upper", x: [0, 10] as const, y: "a", lane: [0, 0.5] as const },
    { key: "lower", x: [0, 10] as const, y: "a", lane: [0.5, 1] as const },
  ];
  expect(nearest(lanes, area, 50, 30)?.key).toBe("upper");
  expect(nearest(lanes, area, 50, 70)?.key).toBe("lower");
});

test("thousands of dots are a path for each look, and those with a label stay", () => {
  const dots = Array.from({ length: 600 }, (_, at) => ({
    key: String(at),
    x: at,
    y: 1,
    tone: at % 2 ? ("ok" as const) : ("bad" as const),
    shape: at % 2 ? ("ring" as const) : ("cross" as const),
    ...(at === 5 && { label: "#5" }),
  }));
  const { container } = render(
    <Plot title="Many" desc="600" x={{ ...X, domain: [0, 600] }} y={{ ...X, domain: [0, 2] }}>
      <Dots dots={dots} />
    </Plot>,
  );
  const paths = [...container.querySelectorAll<SVGPathElement>("svg[role=img] path")];
  expect(paths).toHaveLength(3);
  const starts = paths.map((path) => path.getAttribute("d")?.match(/M/g)?.length);
  expect(starts).toEqual([300, 299, 1]);
  expect(screen.getByText("#5")).toBeInTheDocument();
});
