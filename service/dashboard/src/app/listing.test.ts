import { expect, it } from "vitest";
import { changed, sortOf } from "./listing";

const params = (text: string) => new URLSearchParams(text);

it("begins at the first page when a filter changes, and keeps the rest", () => {
  expect(changed(params("state=running&after=k1&sort=score"), { op: "a b" }).toString()).toBe(
    "state=running&sort=score&op=a+b",
  );
});

it("goes to another page under the same filters", () => {
  expect(changed(params("op=x&after=k1"), { after: "k2" }).toString()).toBe("op=x&after=k2");
  expect(changed(params("op=x&after=k1"), { after: null }).toString()).toBe("op=x");
});

it("repeats a list and drops what is empty", () => {
  expect(changed(params("state=failed"), { state: ["queued", "running"], text: "" }).toString()).toBe(
    "state=queued&state=running",
  );
});

it("sorts by what the address names if that can be sorted by", () => {
  expect(sortOf(params("sort=score&order=asc"), ["created", "score"])).toEqual({
    key: "score",
    descending: false,
  });
  expect(sortOf(params("sort=__proto__"), ["created", "score"])).toEqual({
    key: "created",
    descending: true,
  });
});
