import { beforeEach, expect, test } from "vitest";
import type { AskDocument } from "../../api/queries";
import { dropDraft, readDraft, writeDraft } from "./draft";
import { complaintAbout, kindOf, replyOf } from "./kinds";
import { isOver } from "./states";

beforeEach(() => localStorage.clear());

test("a draft is kept until it is sent or emptied", () => {
  expect(readDraft("ak_1")).toBeNull();
  expect(writeDraft("ak_1", "def run(): ...", 5)).toBe(true);
  expect(readDraft("ak_1")).toEqual({ text: "def run(): ...", savedAt: 5 });
  writeDraft("ak_1", "", 6);
  expect(readDraft("ak_1")).toBeNull();
  writeDraft("ak_2", "x", 7);
  dropDraft("ak_2");
  expect(readDraft("ak_2")).toBeNull();
});

test("of many drafts the oldest go, and nothing else does", () => {
  localStorage.setItem("warpsmith-theme", "dark");
  for (let at = 0; at < 45; at += 1) writeDraft(`ak_${at}`, "x", at);
  expect(readDraft("ak_4")).toBeNull();
  expect(readDraft("ak_5")).not.toBeNull();
  expect(localStorage.getItem("warpsmith-theme")).toBe("dark");
});

test("what is stored by something else is no draft, and a full storage is told", () => {
  localStorage.setItem("warpsmith-answer:ak_1", '["x"]');
  expect(readDraft("ak_1")).toBeNull();
  localStorage.setItem("warpsmith-answer:ak_1", "{");
  expect(readDraft("ak_1")).toBeNull();
  const full = {
    ...{ length: 0, key: () => null, getItem: () => null, removeItem: () => {} },
    setItem: () => {
      throw new DOMException("full", "QuotaExceededError");
    },
  };
  expect(writeDraft("ak_1", "text", 1, full)).toBe(false);
});

test("code is fenced once; ideas are sent as they are", () => {
  expect(replyOf("code", "def run():\n    pass\n\n")).toBe("```python\ndef run():\n    pass\n```\n");
  const fenced = "Here it is.\n```python\nx = 1\n```";
  expect(replyOf("repair", fenced)).toBe(fenced);
  expect(replyOf("ideate", "[]")).toBe("[]");
  expect(kindOf("something new").language).toBe("text");
});

test("a list of ideas that cannot be read is complained of before it is sent", () => {
  expect(complaintAbout("ideate", '[{"title": "x"}]')).toBeNull();
  expect(complaintAbout("ideate", "```json\n[]\n```")).toBeNull();
  expect(complaintAbout("ideate", "[{")).toMatch(/not JSON/);
  expect(complaintAbout("ideate", "{}")).toMatch(/no list/);
  expect(complaintAbout("code", "[{")).toBeNull();
});

test.each([
  ["ideate", "answered", "pending", "verified", false],
  ["ideate", "answered", "waiting", "verified", false],
  ["ideate", "answered", "succeeded", "verified", true],
  ["ideate", "withdrawn", "pending", "verified", true],
  ["ideate", "open", "waiting", "verified", false],
  ["code", "answered", "succeeded", "coded", false],
  ["code", "answered", "succeeded", "verified", true],
])(
  "an ask of kind %s that is %s, its step %s and its node %s, is over: %s",
  (kind, state, step, node, over) => {
    const ask = { kind, state, step: { state: step }, node: { state: node } };
    expect(isOver(ask as unknown as AskDocument)).toBe(over);
  },
);
