/** What is wrong in the house, and what to do about it. Pure. */

import type { SystemDocument, WorkerDocument } from "../../api/queries";
import { judgeCommand } from "../../app/workers";
import { format } from "../../design";

export interface Finding {
  /** `bad`: something stands still. `warn`: something will, or is not as it should be. */
  tone: "bad" | "warn";
  what: string;
  remedy: string;
  command: string | null;
}

type Queue = SystemDocument["queues"][number];

const SLOW_S = 15 * 60;

export function findings(system: SystemDocument, workers: readonly WorkerDocument[]): Finding[] {
  return [
    ...system.checks.filter(({ ok }) => !ok).map(brokenPart),
    ...(system.workers_alive === 0 ? [nobody(workers)] : system.queues.flatMap(stalled)),
    ...(system.workers_alive > 0 && !workers.some(({ role, alive }) => role === "reconciler" && alive)
      ? [noReconciler()]
      : []),
    ...(system.workers_alive > 0
      ? workers.filter(({ state, name }) => state === "silent" && !replaced(name, workers)).map(silent)
      : []),
    ...versionsApart(system, workers),
    ...(system.asks_open > 0 ? [asked(system.asks_open)] : []),
  ];
}

function brokenPart({ name, detail }: SystemDocument["checks"][number]): Finding {
  return name === "database"
    ? {
        tone: "bad",
        what: `The database is not as it must be: ${detail}`,
        remedy: "Bring it to this program's revision; the command tells what it finds.",
        command: "warpsmith db upgrade",
      }
    : {
        tone: "bad",
        what: "The broker does not answer.",
        remedy: "Searches wait and lose nothing; they go on once it is back. See all that is missing:",
        command: "warpsmith doctor",
      };
}

function nobody(workers: readonly WorkerDocument[]): Finding {
  return {
    tone: "bad",
    what: workers.length === 0 ? "No worker has ever reported in." : "No worker is alive.",
    remedy: "Searches wait until there is one. Start API, workers and broker on this machine:",
    command: "warpsmith up",
  };
}

/** The command that serves a queue, as the guide has it. */
export function commandFor({ name, role, target }: Pick<Queue, "name" | "role" | "target">): string {
  const celery = (rest: string) => `python -P -m warpsmith.workers.queue worker -Q ${name} ${rest}`;
  if (role === "model") return celery("-n model@%h --pool prefork -c 4");
  return judgeCommand(target);
}

function stalled(queue: Queue): Finding[] {
  const steps = queue.waiting === 1 ? "One step waits" : `${format.count(queue.waiting)} steps wait`;
  const place =
    queue.role === "judge" ? `for a judge of ${queue.target ?? queue.name}` : "for a model worker";
  if (queue.live_workers === 0 && queue.role === "judge") {
    return [
      {
        tone: queue.waiting > 0 ? "bad" : "warn",
        what:
          queue.waiting > 0
            ? `${steps} ${place}, and none is alive.`
            : `A search goes on for ${queue.target ?? queue.name}, and no judge of it is alive.`,
        remedy:
          "Start one on a host that has the device; on another host than this, join it (warpsmith workers invite):",
        command: commandFor(queue),
      },
    ];
  }
  if (queue.live_workers === 0) {
    return [
      {
        tone: queue.waiting > 0 ? "bad" : "warn",
        what: queue.waiting > 0 ? `${steps} ${place}, and none is alive.` : "No model worker is alive.",
        remedy: "Without one no model is asked and nothing is replayed:",
        command: commandFor(queue),
      },
    ];
  }
  if (queue.waiting > 0 && (queue.oldest_s ?? 0) > SLOW_S) {
    return [
      {
        tone: "warn",
        what: `${steps} ${place}, the oldest for ${format.duration(queue.oldest_s)}.`,
        remedy:
          queue.role === "judge"
            ? "One judge takes one device at a time: another device with a judge of its own would halve the wait."
            : "More model workers ask in parallel:",
        command: queue.role === "judge" ? null : commandFor(queue),
      },
    ];
  }
  return [];
}

function noReconciler(): Finding {
  return {
    tone: "warn",
    what: "No reconciler is alive.",
    remedy: "A step whose worker dies is then not given to another. Start it:",
    command: "python -m warpsmith.workers.queue.reconciler",
  };
}

/** Whether another worker of the same host and task took a silent one's place. */
function replaced(name: string, workers: readonly WorkerDocument[]): boolean {
  const gone = workers.find((worker) => worker.name === name);
  return workers.some(({ alive, role, target }) => alive && role === gone?.role && target === gone.target);
}

function silent({ name, target, role }: WorkerDocument): Finding {
  return {
    tone: "warn",
    what: `${name} has fallen silent, and no other ${target ? `judge of ${target}` : `${role} worker`} is alive.`,
    remedy: "What it had in hand is given to another when its lease ends. Start it again where it ran.",
    command: null,
  };
}

function versionsApart(system: SystemDocument, workers: readonly WorkerDocument[]): Finding[] {
  const apart = workers.filter(
    (worker) => worker.alive && worker.version !== null && worker.version !== system.version,
  );
  if (apart.length === 0) return [];
  const names = apart.map((worker) => `${worker.name} (${worker.version})`).join(", ");
  return [
    {
      tone: "warn",
      what: `Workers run another version than the service's ${system.version}: ${names}.`,
      remedy:
        "Drain their hosts (warpsmith workers drain HOST), install one version everywhere and start them again.",
      command: null,
    },
  ];
}

function asked(count: number): Finding {
  return {
    tone: "warn",
    what: count === 1 ? "One ask is open." : `${format.count(count)} asks are open.`,
    remedy: "Their searches wait for an answer: give it on the page Asks, or let an agent do it:",
    command: "warpsmith mcp",
  };
}
