import { expect, it } from "vitest";
import type { SystemDocument } from "../../api/queries";
import { commandFor, findings } from "./findings";
import { QUEUE, RECONCILER, SYSTEM, worker } from "./fixtures";

const ALL = [worker({}), RECONCILER];
const says = (system: Partial<SystemDocument>, workers = ALL) => findings({ ...SYSTEM, ...system }, workers);

it("has nothing to say of a house in order", () => expect(says({})).toEqual([]));

it("gives the command that starts a judge for jobs without one", () =>
  expect(
    says({
      queues: [{ ...QUEUE, name: "judge.cuda-sm_90", target: "cuda:sm_90", waiting: 3, live_workers: 0 }],
    }),
  ).toEqual([
    {
      tone: "bad",
      what: "3 steps wait for a judge of cuda:sm_90, and none is alive.",
      remedy:
        "Start one on a host that has the device; on another host than this, join it (warpsmith workers invite):",
      command: "warpsmith worker --gpu all",
    },
  ]));

it("says that nobody is there once, and not of every queue", () => {
  const found = says({ workers_alive: 0, queues: [{ ...QUEUE, waiting: 3, live_workers: 0 }] }, []);
  expect(found.map(({ what, command }) => [what, command])).toEqual([
    ["No worker has ever reported in.", "warpsmith up"],
  ]);
});

it("tells of parts that do not work", () =>
  expect(
    says({ checks: [{ name: "database", ok: false, detail: "revision 1 in place of 2" }] })[0],
  ).toMatchObject({
    tone: "bad",
    what: "The database is not as it must be: revision 1 in place of 2",
    command: "warpsmith db upgrade",
  }));

it("tells of long waits, silent workers without a successor, other versions and open asks", () => {
  const [wait, silence, versions, asks] = says(
    { queues: [{ ...QUEUE, waiting: 1, oldest_s: 3600 }], asks_open: 2 },
    [
      ...ALL,
      worker({ name: "judge@old", alive: false }),
      worker({ name: "judge@gone", target: "cuda:sm_80", alive: false, state: "drained" }),
      worker({ name: "judge@gpu", target: "cuda:sm_90", alive: false }),
      worker({ name: "model@b", role: "model", target: null, version: "0.9" }),
    ],
  );
  expect(wait?.what).toBe("One step waits for a judge of cpu:x86_64, the oldest for 1 h.");
  expect(silence?.what).toBe("judge@gpu has fallen silent, and no other judge of cuda:sm_90 is alive.");
  expect(versions?.what).toContain("model@b (0.9)");
  expect(asks?.what).toBe("2 asks are open.");
});

it("misses the reconciler", () =>
  expect(says({}, [worker({})])).toMatchObject([
    { tone: "warn", command: "python -m warpsmith.workers.queue.reconciler" },
  ]));

it("serves each queue by its own command", () => {
  expect(commandFor(QUEUE)).toBe("warpsmith worker --gpu none");
  expect(commandFor({ name: "model", role: "model", target: null })).toContain("-Q model -n model@%h");
});
