import { beforeEach, expect, it, vi } from "vitest";
import { fold } from "./rows";
import { Stage } from "./stage";
import { page, row, small } from "./testing";

const SIZE = { width: 900, height: 600 };
const MAP = { width: 160, height: 120 };
const OPEN: ReadonlySet<string> = new Set();

let frames: FrameRequestCallback[] = [];

beforeEach(() => {
  frames = [];
  const ink = new Proxy(
    {},
    { get: (_, name) => (name === "measureText" ? () => ({ width: 9 }) : () => undefined), set: () => true },
  );
  vi.spyOn(HTMLCanvasElement.prototype, "getContext").mockReturnValue(ink as never);
  vi.stubGlobal("requestAnimationFrame", (tell: FrameRequestCallback) => frames.push(tell));
});

function stage() {
  const canvas = () => document.createElement("canvas");
  const whole = vi.fn();
  return new Stage({ tree: canvas(), marks: canvas(), map: canvas(), frame: canvas() }, () => true, whole);
}

function run() {
  for (let at = 0; frames.length > 0 && at < 20; at++)
    for (const tell of frames.splice(0)) tell(1e6 + at * 1000);
}

it("asks for one frame, however much changes before it", () => {
  const made = stage();
  made.setSize(SIZE, MAP, 1);
  made.setTree(small(), OPEN);
  for (let seq = 7; seq < 30; seq++) made.setTree(fold(small(), page([row(seq, 3)])), OPEN);
  expect(frames).toHaveLength(1);
});

it("keeps the whole tree in view as it grows, until a person moves the view", () => {
  const made = stage();
  made.setSize(SIZE, MAP, 1);
  made.setTree(small(), OPEN);
  run();
  const before = made.spot("n1");
  made.setTree(fold(small(), page([row(7, 3), row(8, 3), row(9, 3), row(10, 3)])), OPEN);
  run();
  expect(made.spot("n1")).not.toEqual(before);
  made.pan(15, 0);
  run();
  expect(made.view()).not.toBeNull();
});

it("holds what a person looks at where it is while nodes come", () => {
  const made = stage();
  made.setSize(SIZE, MAP, 1);
  made.setTree(small(), OPEN);
  run();
  made.pan(10, 10);
  made.setMarks({ selected: null, cursor: "n6", focused: true, hovered: null, matches: new Set() });
  run();
  const before = made.spot("n6");
  made.setTree(fold(small(), page([row(7, 1), row(8, 1), row(9, 1)])), OPEN);
  run();
  expect(made.spot("n6")?.x).toBeCloseTo(before?.x ?? 0);
  expect(made.spot("n6")?.y).toBeCloseTo(before?.y ?? 0);
});

it("takes up the view it had, also when no tree had come before it was left", () => {
  const first = stage();
  first.setSize(SIZE, MAP, 1);
  first.setTree(small(), OPEN);
  run();
  first.zoom(1.5);
  run();
  const view = first.view();
  if (!view) throw new Error("no view");
  const left = stage();
  left.restore(view);
  expect(left.view()).toEqual(view);
  const again = stage();
  again.restore(view);
  again.setSize(SIZE, MAP, 1);
  run();
  again.setTree(small(), OPEN);
  run();
  expect(again.spot("n1")?.x).toBeCloseTo(first.spot("n1")?.x ?? 0);
  expect(again.spot("n1")?.y).toBeCloseTo(first.spot("n1")?.y ?? 0);
});

it("finds what it drew, and tells the sign of hidden nodes from the node", () => {
  const made = stage();
  made.setSize(SIZE, MAP, 1);
  made.setTree(small(), new Set(["n1"]));
  run();
  const spot = made.spot("n1");
  if (!spot) throw new Error("not drawn");
  expect(made.hit(spot)).toMatchObject({ place: { id: "n1" }, badge: false });
  expect(made.hit({ x: spot.x + spot.r + 12, y: spot.y })).toMatchObject({
    place: { id: "n1" },
    badge: true,
  });
  expect(made.hit({ x: 5, y: 5 })).toBeNull();
});
