import { expect, it } from "vitest";
import { SyntheticSearch } from "../../../../bench/synthetic";
import { below, EMPTY_LAYOUT, firstFrom, hiders, layout, type Place, refresh } from "./layout";
import { EMPTY_TREE, fold } from "./rows";
import { page, row, small, treeFrom } from "./testing";

const OPEN: ReadonlySet<string> = new Set();

it("places depth in columns, siblings a row apart and cousins further", () => {
  const { byId, columns, height } = layout(small(), OPEN);
  expect(columns.map((column) => column.map((place) => place.id))).toEqual([
    ["n0"],
    ["n1", "n2", "n3"],
    ["n4", "n5", "n6"],
  ]);
  const y = (id: string) => byId.get(id)?.y ?? Number.NaN;
  expect(y("n5") - y("n4")).toBeCloseTo(1);
  expect(y("n6") - y("n5")).toBeGreaterThanOrEqual(1.4 - 1e-9);
  expect(y("n1")).toBeCloseTo((y("n4") + y("n5")) / 2);
  expect(Math.min(...[...byId.values()].map((place) => place.y))).toBe(0);
  expect(height).toBeCloseTo(Math.max(...[...byId.values()].map((place) => place.y)));
});

it("hides what stands below a collapsed node, and counts it", () => {
  const { byId, columns } = layout(small(), new Set(["n1"]));
  expect(byId.has("n4")).toBe(false);
  expect(byId.get("n1")?.hidden).toBe(2);
  expect(byId.get("n3")?.hidden).toBe(0);
  expect(columns[2]?.map((place) => place.id)).toEqual(["n6"]);
  expect(layout(small(), new Set(["n0"])).byId.size).toBe(1);
  expect(below(small().children, "n0")).toBe(6);
});

it("takes over changed rows without moving anything", () => {
  const before = small();
  const arranged = layout(before, OPEN);
  const place = arranged.byId.get("n4");
  const { y } = place as Place;
  refresh(arranged, fold(before, page([row(4, 1, { verdict: "rejected", updated_at: 2 })])).rows);
  expect(place).toMatchObject({ kind: "rejected", y });
  expect(place?.row.verdict).toBe("rejected");
  expect(arranged.byId.get("n5")?.kind).toBe("screened");
});

it("is empty for a search without nodes", () => {
  expect(layout(treeFrom([]), OPEN)).toBe(EMPTY_LAYOUT);
});

it("keeps every column of a large tree sorted and without overlaps, and edges within their parent's span", () => {
  const search = new SyntheticSearch();
  search.grow(4999);
  const arranged = layout(fold(EMPTY_TREE, search.page(search.rows)), OPEN);
  expect(arranged.byId.size).toBe(5000);
  const places = [...arranged.byId.values()];
  const overlapping = arranged.columns.flatMap((column) =>
    column.filter((place, at) => at > 0 && place.y - (column[at - 1]?.y ?? 0) < 1 - 1e-9),
  );
  const outside = places.filter(({ y, parent }) => parent && (y < parent.top || y > parent.bottom));
  expect(overlapping).toEqual([]);
  expect(outside).toEqual([]);
});

it("finds the first place from a row on", () => {
  const column = layout(small(), OPEN).columns[2] ?? [];
  expect(firstFrom(column, -1)).toBe(0);
  expect(firstFrom(column, column[1]?.y ?? 0)).toBe(1);
  expect(firstFrom(column, (column[1]?.y ?? 0) + 0.01)).toBe(2);
  expect(firstFrom(column, 1e9)).toBe(3);
});

it("names the collapsed nodes that hide one, the nearest first", () => {
  expect(hiders(small().rows, new Set(["n0", "n1", "n3"]), "n4")).toEqual(["n1", "n0"]);
  expect(hiders(small().rows, new Set(["n4"]), "n4")).toEqual([]);
});
