import { expect, it } from "vitest";
import { commandOf } from "./keys";

const press = (key: string, held: { shiftKey?: boolean; ctrlKey?: boolean } = {}) =>
  commandOf({ key, shiftKey: false, ctrlKey: false, metaKey: false, altKey: false, ...held });

it("walks with arrows, and moves the view with Shift", () => {
  expect(press("ArrowLeft")).toEqual({ does: "walk", direction: "parent" });
  expect(press("ArrowDown")).toEqual({ does: "walk", direction: "next" });
  expect(press("ArrowDown", { shiftKey: true })).toMatchObject({ does: "pan", dx: 0, dy: -80 });
});

it("knows its letters in both cases, and ? and + as Shift makes them", () => {
  expect(press("b")).toEqual({ does: "best" });
  expect(press("B", { shiftKey: true })).toEqual({ does: "best" });
  expect(press("w")).toEqual({ does: "fill" });
  expect(press("?", { shiftKey: true })).toEqual({ does: "help" });
  expect(press("+", { shiftKey: true })).toMatchObject({ does: "zoom" });
  expect(press("n")).toEqual({ does: "match", by: 1 });
  expect(press("N", { shiftKey: true })).toEqual({ does: "match", by: -1 });
});

it("leaves the browser its own keys", () => {
  expect(press("f", { ctrlKey: true })).toBeNull();
  expect(press("Tab")).toBeNull();
  expect(press("a")).toBeNull();
});
