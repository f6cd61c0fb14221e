import type { SystemDocument, WorkerDocument } from "../../api/queries";

/** A house in order, for tests: a queue with its judge, and the reconciler. */
export const QUEUE = {
  name: "judge.cpu-x86_64",
  role: "judge",
  target: "cpu:x86_64",
  waiting: 0,
  deferred: 0,
  running: 0,
  oldest_s: null,
  live_workers: 1,
};

export const SYSTEM: SystemDocument = {
  version: "1.0",
  as_of: 0,
  keys_required: false,
  database: "sqlite",
  checks: [
    { name: "database", ok: true, detail: "" },
    { name: "broker", ok: true, detail: "" },
  ],
  queues: [QUEUE],
  devices: [],
  workers_alive: 2,
  searches_by_state: {},
  asks_open: 0,
  kernels: 0,
  quotas: [],
  versions: {},
};

export const worker = (changes: Partial<WorkerDocument>): WorkerDocument => ({
  name: "judge@a",
  role: "judge",
  target: "cpu:x86_64",
  host: "a",
  device: null,
  compiles: {},
  version: "1.0",
  alive: true,
  state: changes.alive === false ? "silent" : "idle",
  running: 0,
  steps: [],
  draining_since: null,
  facts: {},
  started_at: 0,
  seen_at: 0,
  ...changes,
});

export const RECONCILER = worker({ name: "reconciler@a", role: "reconciler", target: null });
