/** Uploads that a worker of the service reads: wait for one, and say how far it has come. */

import { answer, api, type Schemas } from "./client";
import { ProblemError } from "./problem";

export type ImportDocument = Schemas["ImportDocument"];

const FIRST_PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 1000;

export function isOpen({ state }: Pick<ImportDocument, "state">): boolean {
  return state === "pending" || state === "running";
}

const STAGES: Readonly<Record<NonNullable<ImportDocument["stage"]>, string>> = {
  reading: "is read",
  running: "is run in the sandbox",
  storing: "is stored",
};

/** How far an import has come, in words. */
export function describeImport({ state, stage, done, total }: ImportDocument): string {
  if (state === "pending") return "waits for a model worker";
  if (state !== "running") return state;
  const share = total && done ? `, ${Math.min(100, Math.floor((100 * done) / total))} %` : "";
  return STAGES[stage ?? "reading"] + share;
}

/** The import once it is done; throws the problem for which it failed. `told` hears of each look in between. */
export async function awaitImport(
  sent: ImportDocument,
  told: (found: ImportDocument) => void,
  pause: (ms: number) => Promise<void> = (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
): Promise<ImportDocument> {
  let found = sent;
  let pauseMs = FIRST_PAUSE_MS;
  while (isOpen(found)) {
    told(found);
    await pause(pauseMs);
    pauseMs = Math.min(pauseMs * 1.5, LONGEST_PAUSE_MS);
    found = await answer(api.GET("/v1/imports/{import_id}", { params: { path: { import_id: sent.id } } }));
  }
  if (found.problem) throw ProblemError.fromBody(found.problem.status, found.problem);
  return found;
}
