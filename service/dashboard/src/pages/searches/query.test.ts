import { expect, it } from "vitest";
import { isFiltered, searchQuery } from "./query";

const query = (text: string) => searchQuery(new URLSearchParams(text));

it("asks for the newest first where the address says nothing", () =>
  expect(query("")).toEqual({ sort: "created", order: "desc" }));

it("takes filters, sort and page from the address", () =>
  expect(query("state=failed&state=running&op=gelu&target=cpu&text=x&sort=score&order=asc&after=k")).toEqual({
    state: ["running", "failed"],
    op: "gelu",
    target: "cpu",
    text: "x",
    after: "k",
    sort: "score",
    order: "asc",
  }));

it("leaves out what the service would refuse", () =>
  expect(query("state=exploded&sort=colour&op=&order=sideways")).toEqual({ sort: "created", order: "desc" }));

it("knows a filtered list from an empty one", () => {
  expect(isFiltered(new URLSearchParams("sort=score&after=k"))).toBe(false);
  expect(isFiltered(new URLSearchParams("text=a"))).toBe(true);
});
