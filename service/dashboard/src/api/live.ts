/** The events of one search as they happen: one EventSource, whose events freshen what the page holds. */

import { type QueryClient, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import type { Schemas } from "./client";
import { keys } from "./queries";
import { SESSION } from "./session";

export type LiveState = "connecting" | "live" | "reconnecting" | "ended";
export type EventDocument = Schemas["EventDocument"];

type EventType = EventDocument["type"];

// An EventSource hands on only those that are named, so every type that the service declares stands here: the compiler
// finds one that is missing and one that is none.
const EVENT_TYPES = Object.keys({
  "ask.answered": true,
  "ask.expired": true,
  "ask.opened": true,
  "attempt.deferred": true,
  "attempt.expired": true,
  "attempt.failed": true,
  "budget.changed": true,
  "bundle.created": true,
  "bundle.dropped": true,
  "bundle.merged": true,
  "bundle.unjudged": true,
  "idea.added": true,
  "kernel.kept": true,
  "node.banned": true,
  "node.closed": true,
  "node.coded": true,
  "node.created": true,
  "node.judged": true,
  "node.pinned": true,
  "node.seeded": true,
  "node.tried": true,
  "node.unbanned": true,
  "node.unpinned": true,
  "node.verified": true,
  "round.started": true,
  "search.branched": true,
  "search.cancelled": true,
  "search.created": true,
  "search.failed": true,
  "search.finished": true,
  "search.paused": true,
  "search.resumed": true,
  "search.started": true,
} satisfies Record<EventType, true>);

const LAST = new Set<EventType>(["search.finished", "search.failed", "search.cancelled"]);
const FIRST_WAIT_MS = 1000;
const LONGEST_WAIT_MS = 30_000;
const CLOSED = 2;

interface Source {
  readonly readyState: number;
  addEventListener(type: string, listener: (event: MessageEvent<string>) => void): void;
  close(): void;
}

interface StreamOptions {
  searchId: string;
  /** Only events with a higher id are sent. */
  after: number;
  onEvent: (event: EventDocument) => void;
  onState: (state: LiveState) => void;
  /** The service answered with an error; the browser does not say which. */
  onRefused: () => void;
  open?: (url: string) => Source;
}

/**
 * Follows a search until it ends or `close` is called. A dropped connection is the browser's to resume, with
 * Last-Event-ID; where the browser gives up (the service answered an error), a new one is opened after a growing wait,
 * and says by `after` what was seen.
 */
export function follow({
  searchId,
  after,
  onEvent,
  onState,
  onRefused,
  open = (url) => new EventSource(url) as Source,
}: StreamOptions): {
  close: () => void;
} {
  let last = after;
  let wait = FIRST_WAIT_MS;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let source: Source | undefined;
  let done = false;

  function stop() {
    done = true;
    clearTimeout(timer);
    source?.close();
  }

  function connect() {
    const mine = open(`/v1/searches/${encodeURIComponent(searchId)}/events?after=${last}`);
    source = mine;
    mine.addEventListener("open", () => {
      wait = FIRST_WAIT_MS;
      if (!done) onState("live");
    });
    mine.addEventListener("error", () => {
      if (done) return;
      onState("reconnecting");
      if (mine.readyState !== CLOSED) return;
      onRefused();
      timer = setTimeout(connect, wait);
      wait = Math.min(wait * 2, LONGEST_WAIT_MS);
    });
    for (const type of EVENT_TYPES) {
      mine.addEventListener(type, (message) => {
        if (done) return;
        const event = JSON.parse(message.data) as EventDocument;
        if (event.id <= last) return;
        last = event.id;
        onEvent(event);
        if (!LAST.has(event.type)) return;
        stop();
        onState("ended");
      });
    }
  }

  onState("connecting");
  connect();
  return { close: stop };
}

const SETTLE_MS = 250;

/**
 * Collects events for a moment, then has what they touch read again, once each. It waits for what it asked for, and
 * then as long again: a large tree is not asked for faster than it comes.
 */
export class Freshener {
  private timer: ReturnType<typeof setTimeout> | undefined;
  private busy = false;
  private stopped = false;
  private readonly nodes = new Set<string>();
  private readonly lists = new Set<string>();
  private dirty = false;

  constructor(
    private readonly client: QueryClient,
    private readonly searchId: string,
  ) {}

  note(event: EventDocument): void {
    this.dirty = true;
    if (event.node_id) this.nodes.add(event.node_id);
    const noun = event.type.split(".")[0];
    if (noun === "ask") this.lists.add("asks").add("ask");
    if (noun === "kernel") this.lists.add("kernels");
    if (noun === "search") this.lists.add("searches");
    if (!this.busy) this.schedule(SETTLE_MS);
  }

  /** Reads what is still noted at once, and nothing more: the search has ended. */
  async finish(): Promise<void> {
    clearTimeout(this.timer);
    this.timer = undefined;
    if (this.dirty) await this.flush();
    this.stop();
  }

  stop(): void {
    this.stopped = true;
    clearTimeout(this.timer);
  }

  private schedule(wait: number): void {
    if (!this.stopped) this.timer ??= setTimeout(() => void this.flush(), wait);
  }

  private async flush(): Promise<void> {
    this.timer = undefined;
    this.busy = true;
    this.dirty = false;
    const { client, searchId } = this;
    const touched = [...this.nodes].map(keys.node).filter((key) => client.getQueryState(key));
    const stale = [keys.search(searchId), keys.tree(searchId), keys.story(searchId), ...touched];
    const lists = [...this.lists].map((name) => [name]);
    this.nodes.clear();
    this.lists.clear();
    const started = performance.now();
    await Promise.allSettled([...stale, ...lists].map((queryKey) => client.invalidateQueries({ queryKey })));
    this.busy = false;
    if (this.dirty) this.schedule(Math.max(SETTLE_MS, performance.now() - started));
  }
}

/**
 * Keeps a search's queries fresh while it runs, and says how the connection is. Mount it once per page: every event
 * from the search's first on is also handed to `onEvent`, so that a page can tell the search's history.
 */
export function useLive(
  searchId: string,
  ended: boolean | undefined,
  onEvent?: (event: EventDocument) => void,
): LiveState {
  const client = useQueryClient();
  const [state, setState] = useState<LiveState>("connecting");
  const [listener] = useState<{ current: typeof onEvent }>(() => ({ current: onEvent }));
  useEffect(() => {
    listener.current = onEvent;
  });
  useEffect(() => {
    if (ended === undefined) return;
    if (ended) {
      setState("ended");
      return;
    }
    const freshener = new Freshener(client, searchId);
    const stream = follow({
      searchId,
      after: 0,
      onEvent: (event) => {
        freshener.note(event);
        listener.current?.(event);
        if (LAST.has(event.type)) void freshener.finish();
      },
      onState: setState,
      // It may be a 401, which only a request can tell.
      onRefused: () => void client.invalidateQueries({ queryKey: SESSION }),
    });
    return () => {
      stream.close();
      freshener.stop();
    };
  }, [client, searchId, ended, listener]);
  return state;
}
