import { expect, it } from "vitest";
import { parseTags } from "./labels";

it("takes tags between commas, each once, with single spaces", () =>
  expect(parseTags(" paper,h100   x2,, paper ")).toEqual(["paper", "h100 x2"]));
