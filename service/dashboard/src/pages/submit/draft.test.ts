import { beforeEach, expect, it } from "vitest";
import { dropDraft, EMPTY, keepDraft, keyFor, parseDraft, readDraft } from "./draft";

beforeEach(() => sessionStorage.clear());

it("keeps a draft, and begins anew once it is dropped", () => {
  keepDraft({ ...EMPTY, text: "name: a", budget: { tokens: "5" } });
  expect(readDraft()).toEqual({ ...EMPTY, text: "name: a", budget: { tokens: "5" } });
  dropDraft();
  expect(readDraft()).toEqual(EMPTY);
});

it.each([
  ["", EMPTY],
  ["[]", EMPTY],
  ['{"text": 3, "budget": [], "provider": "oracle", "target": "cpu"}', { ...EMPTY, target: "cpu" }],
])("takes from %s what has the right form", (stored, draft) => expect(parseDraft(stored)).toEqual(draft));

it("sends the same submission under one key, and another under another", () => {
  const first = keyFor({ target: "cpu" });
  expect(first).toMatch(/^[0-9a-f]{32}$/);
  expect(keyFor({ target: "cpu" })).toBe(first);
  expect(keyFor({ target: "cuda:sm_90" })).not.toBe(first);
});

it("gives a new key for the same submission after its search began", () => {
  const first = keyFor({ target: "cpu" });
  dropDraft();
  expect(keyFor({ target: "cpu" })).not.toBe(first);
});
