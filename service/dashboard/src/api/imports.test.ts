import { afterEach, expect, test, vi } from "vitest";
import { awaitImport, describeImport, type ImportDocument } from "./imports";

const SENT: ImportDocument = {
  id: "im_1",
  kind: "pool",
  team: "default",
  asked_by: null,
  size: 100,
  state: "pending",
  stage: null,
  done: 0,
  total: null,
  tries: 0,
  result: null,
  problem: null,
  created_at: 0,
  started_at: null,
  finished_at: null,
};
const AT_ONCE = () => Promise.resolve();

function answering(...documents: ImportDocument[]) {
  const left = [...documents];
  const asked = vi.fn(() => Promise.resolve(Response.json(left.shift())));
  vi.stubGlobal("fetch", asked);
  return asked;
}

afterEach(() => {
  vi.unstubAllGlobals();
});

test("an import is looked at until it is done", async () => {
  const reading: ImportDocument = { ...SENT, state: "running", stage: "reading", done: 30, total: 120 };
  const result = { pool_id: "pl_1", op_id: null, created: true, format: null, notes: [], sandbox: null };
  const asked = answering(reading, { ...SENT, state: "done", result });
  const told: string[] = [];
  const done = await awaitImport(SENT, (found) => told.push(describeImport(found)), AT_ONCE);
  expect(done.result?.pool_id).toBe("pl_1");
  expect(asked).toHaveBeenCalledTimes(2);
  expect(told).toEqual(["waits for a model worker", "is read, 25 %"]);
});

test("one that failed is thrown as its problem", async () => {
  const problem = {
    type: "urn:warpsmith:problem:invalid-pool",
    title: "The pool is wrong",
    status: 422,
    detail: "line 2",
    errors: [{ field: "line 2, ordinal", found: -1, expected: "a whole number" }],
  } as ImportDocument["problem"];
  answering({ ...SENT, state: "failed", problem });
  await expect(awaitImport(SENT, () => undefined, AT_ONCE)).rejects.toMatchObject({
    status: 422,
    type: "urn:warpsmith:problem:invalid-pool",
    errors: [{ field: "line 2, ordinal" }],
  });
});

test("stages are told in words", () => {
  expect(describeImport({ ...SENT, state: "running", stage: "running" })).toBe("is run in the sandbox");
  expect(describeImport({ ...SENT, state: "running", stage: "storing", done: 0 })).toBe("is stored");
  expect(describeImport({ ...SENT, state: "failed" })).toBe("failed");
});
