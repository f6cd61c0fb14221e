import { expect, it } from "vitest";
import { SyntheticSearch } from "../../../../bench/synthetic";
import {
  anchored,
  between,
  centred,
  kept,
  MAX_ROW,
  minRow,
  panBy,
  READING_ROW,
  reveal,
  toScreen,
  wholeView,
  zoomAt,
} from "./camera";
import { layout, type Place } from "./layout";
import { EMPTY_TREE, fold } from "./rows";
import { small } from "./testing";

const SIZE = { width: 1000, height: 600 };
const NONE: ReadonlySet<string> = new Set();
const few = layout(small(), NONE);
const search = new SyntheticSearch();
search.grow(4999);
const many = layout(fold(EMPTY_TREE, search.page(search.rows)), NONE);

const inside = (point: { x: number; y: number }, size = SIZE) =>
  point.x >= 0 && point.y >= 0 && point.x <= size.width && point.y <= size.height;
const all = (arranged: typeof few) => [...arranged.byId.values()];
const place = (arranged: typeof few, id: string) => arranged.byId.get(id) as Place;

it.each([SIZE, { width: 360, height: 340 }])(
  "fits every node of any tree into %o, over its whole width",
  (size) => {
    for (const arranged of [few, many]) {
      const camera = wholeView(arranged, size);
      expect(all(arranged).every((one) => inside(toScreen(camera, one), size))).toBe(true);
    }
    const camera = wholeView(many, size);
    expect((many.columns.length - 1) * camera.column).toBeGreaterThan(size.width * 0.5);
  },
);

it("zooms about the pointer: what is under it stays there", () => {
  const camera = wholeView(many, SIZE);
  const goal = place(many, "nd_100");
  const at = toScreen(camera, goal);
  const closer = zoomAt(camera, 20, at, many, SIZE);
  expect(closer.row).toBeCloseTo(camera.row * 20);
  expect(toScreen(closer, goal).x).toBeCloseTo(at.x);
  expect(toScreen(closer, goal).y).toBeCloseTo(at.y);
});

it("zooms within limits", () => {
  const camera = wholeView(few, SIZE);
  expect(zoomAt(camera, 1e6, { x: 0, y: 0 }, few, SIZE).row).toBe(MAX_ROW);
  expect(zoomAt(camera, 1e-6, { x: 0, y: 0 }, few, SIZE).row).toBe(minRow(few, SIZE));
});

it("never loses the tree from view", () => {
  for (const far of [1e6, -1e6]) {
    const camera = kept(panBy(wholeView(few, SIZE), far, far), few, SIZE);
    expect(all(few).some((one) => inside(toScreen(camera, one)))).toBe(true);
  }
});

it("keeps an anchor where it was when the tree grows around it", () => {
  const camera = wholeView(few, SIZE);
  const before = place(few, "n5");
  const after = { depth: 2, y: before.y + 40 };
  const moved = anchored(camera, before, after, many, SIZE);
  expect(toScreen(moved, after).x).toBeCloseTo(toScreen(camera, before).x);
  expect(toScreen(moved, after).y).toBeCloseTo(toScreen(camera, before).y);
  expect(moved.row).toBe(camera.row);
});

it("reveals a node by the least movement, and not at all where it is in view", () => {
  const camera = wholeView(few, SIZE);
  expect(reveal(camera, place(few, "n2"), few, SIZE)).toEqual(camera);
  const away = panBy(camera, 0, -5000);
  const back = reveal(away, place(few, "n2"), few, SIZE);
  expect(inside(toScreen(back, place(few, "n2")))).toBe(true);
  expect(back.x).toBe(away.x);
});

it("goes near enough to read titles", () => {
  const goal = place(many, "nd_4000");
  expect(reveal(wholeView(many, SIZE), goal, many, SIZE, true).row).toBe(READING_ROW);
  const camera = centred(goal, many, SIZE);
  expect(camera.row).toBe(READING_ROW);
  expect(inside(toScreen(camera, goal))).toBe(true);
});

it("moves from one view to another", () => {
  const from = wholeView(few, SIZE);
  const to = zoomAt(from, 1.3, { x: 5, y: 5 }, few, SIZE);
  expect(between(from, to, 0)).toEqual(from);
  expect(between(from, to, 1).row).toBeCloseTo(to.row);
  expect(between(from, to, 0.5).x).toBeCloseTo((from.x + to.x) / 2);
});
