import { expect, it } from "vitest";
import { SyntheticSearch } from "../../../../bench/synthetic";
import { centred, toScreen, wholeView } from "./camera";
import { edgesInView, hitAt, placesInView } from "./cull";
import { detailAt } from "./detail";
import { layout, type Place } from "./layout";
import { EMPTY_TREE, fold } from "./rows";
import { row, treeFrom } from "./testing";

const SIZE = { width: 1000, height: 600 };
const NONE: ReadonlySet<string> = new Set();
const search = new SyntheticSearch();
search.grow(4999);
const tree = fold(EMPTY_TREE, search.page(search.rows));
const many = layout(tree, NONE);
const places = [...many.byId.values()];
const whole = wholeView(many, SIZE);
const near = centred(many.byId.get("nd_900") as Place, many, SIZE);

const ids = (found: readonly Place[]) => found.map((place) => place.id);

it("gives the nodes in view where it is near, and few others", () => {
  const found = new Set(ids(placesInView(many, near, SIZE, 0)));
  const within = (air: number) =>
    places.filter((place) => {
      const { x, y } = toScreen(near, place);
      return x >= -air && y >= -air && x <= SIZE.width + air && y <= SIZE.height + air;
    });
  expect(ids(within(0)).filter((id) => !found.has(id))).toEqual([]);
  const around = new Set(ids(within(near.column)));
  expect([...found].filter((id) => !around.has(id))).toEqual([]);
  expect(found.size).toBeGreaterThan(10);
  expect(found.size).toBeLessThan(300);
});

it("gives no more than the pixels can show where it is far, the telling nodes first", () => {
  const { grain } = detailAt(whole);
  const found = placesInView(many, whole, SIZE, grain);
  expect(found.length).toBeLessThan(2500);
  const binOf = (place: Place) => `${place.depth} ${Math.floor((place.y * whole.row) / grain)}`;
  const shown = new Map(found.map((place) => [binOf(place), place]));
  const accepted = places.filter((place) => tree.rows.get(place.id)?.verdict === "accepted");
  expect(accepted.length).toBeGreaterThan(1000);
  const lost = accepted.filter((place) => {
    return (shown.get(binOf(place))?.rank ?? 0) < place.rank;
  });
  expect(ids(lost)).toEqual([]);
});

it("gives the edges that cross the view, also of nodes outside it", () => {
  const found = new Set(ids(edgesInView(many, near, SIZE, 0)));
  const crossing = places.filter((place) => {
    if (!place.parent) return false;
    const a = toScreen(near, place.parent);
    const b = toScreen(near, place);
    return Math.max(a.y, b.y) >= 0 && Math.min(a.y, b.y) <= SIZE.height && b.x >= 0 && a.x <= SIZE.width;
  });
  expect(ids(crossing).filter((id) => !found.has(id))).toEqual([]);
  expect(crossing.length).toBeGreaterThan(10);
  expect(found.size).toBeLessThan(1500);
  const { grain } = detailAt(whole);
  const coarse = edgesInView(many, whole, SIZE, grain).length;
  expect(coarse).toBeLessThan(edgesInView(many, whole, SIZE, 0).length);
});

const radius = () => 6;
const noTitles = () => 0;

it("hits every node at its middle, near and far", () => {
  const missed = placesInView(many, near, SIZE, 0).filter(
    (place) => hitAt(many, near, toScreen(near, place), radius, noTitles)?.place !== place,
  );
  expect(ids(missed)).toEqual([]);
  const best = many.byId.get(tree.bestId ?? "") as Place;
  const hit = hitAt(many, whole, toScreen(whole, best), radius, noTitles);
  expect(Math.abs((hit?.place.y ?? 1e9) - best.y) * whole.row).toBeLessThan(1);
});

it("hits a title beside its node, and nothing beside that", () => {
  const pair = treeFrom([row(0, null), row(1, 0), row(2, 0)]);
  const arranged = layout(pair, NONE);
  const camera = wholeView(arranged, SIZE);
  const point = toScreen(camera, arranged.byId.get("n1") as Place);
  const hit = (dx: number, dy: number, width = 100) =>
    hitAt(arranged, camera, { x: point.x + dx, y: point.y + dy }, radius, () => width)?.place.id ?? null;
  expect(hit(80, 0)).toBe("n1");
  expect(hit(120, 0)).toBeNull();
  expect(hit(80, 0, 0)).toBeNull();
  expect(hit(9, 0, 0)).toBe("n1");
  expect(hit(-30, 0)).toBeNull();
});
