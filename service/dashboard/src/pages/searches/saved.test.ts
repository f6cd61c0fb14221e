import { expect, it } from "vitest";
import { comparable, compareAddress } from "./chosen";
import { choiceOf, parseSaved, withSaved } from "./saved";

const choice = (text: string) => choiceOf(new URLSearchParams(text));

it("keeps filters and sort of an address, in one order, and no page", () => {
  expect(choice("sort=score&tag=b&tag=a&op=gelu&after=k&text=")).toBe("op=gelu&sort=score&tag=a&tag=b");
  expect(choice("tag=a&tag=b&op=gelu&sort=score")).toBe(choice("sort=score&op=gelu&tag=b&tag=a"));
  expect(choice("after=k")).toBe("");
});

it("writes a name over, and keeps the latest twenty", () => {
  const many = Array.from({ length: 20 }, (_, at) => ({ name: String(at), query: "" }));
  expect(withSaved(many, { name: "new", query: "op=a" })).toHaveLength(20);
  expect(withSaved(many, { name: "3", query: "op=a" }).at(-1)).toEqual({ name: "3", query: "op=a" });
});

it("reads what a browser kept, whatever else stands there", () => {
  expect(parseSaved(null)).toEqual([]);
  expect(parseSaved("{")).toEqual([]);
  expect(parseSaved('{"a": 1}')).toEqual([]);
  expect(parseSaved('[null, 3, {"name": "mine", "query": "after=k&op=a&evil=1"}]')).toEqual([
    { name: "mine", query: "op=a" },
  ]);
});

it("compares two to eight searches of one op", () => {
  const of = (...names: string[]) => names.map((op_name) => ({ op_name }));
  expect(comparable(of("a"))).toContain("two or more");
  expect(comparable(of("a", "b"))).toContain("different ops");
  expect(comparable(of(..."aaaaaaaaa"))).toContain("At most 8");
  expect(comparable(of("a", "a"))).toBeNull();
  expect(compareAddress([{ id: "sr_1" }, { id: "sr_2" }])).toBe("/searches/compare?search=sr_1&search=sr_2");
});
