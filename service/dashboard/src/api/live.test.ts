import { QueryClient } from "@tanstack/react-query";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { type EventDocument, Freshener, follow, type LiveState } from "./live";
import { keys } from "./queries";

/** A connection whose events the test sends. */
class FakeSource {
  static opened: FakeSource[] = [];
  readyState = 0;
  closed = false;
  private readonly listeners = new Map<string, (event: MessageEvent<string>) => void>();

  constructor(readonly url: string) {
    FakeSource.opened.push(this);
  }

  addEventListener(type: string, listener: (event: MessageEvent<string>) => void) {
    this.listeners.set(type, listener);
  }

  close() {
    this.closed = true;
    this.readyState = 2;
  }

  open() {
    this.readyState = 1;
    this.listeners.get("open")?.(new MessageEvent("open"));
  }

  fail(readyState: 0 | 2) {
    this.readyState = readyState;
    this.listeners.get("error")?.(new MessageEvent("error"));
  }

  send(id: number, type: EventDocument["type"]) {
    this.listeners.get(type)?.(new MessageEvent(type, { data: JSON.stringify(event(id, type)) }));
  }
}

function event(id: number, type: EventDocument["type"], nodeId: string | null = null): EventDocument {
  return { id, type, search_id: "sr_1", node_id: nodeId, payload: {}, created_at: 0 };
}

function start() {
  const states: LiveState[] = [];
  const ids: number[] = [];
  const onRefused = vi.fn();
  const stream = follow({
    searchId: "sr_1",
    after: 0,
    onEvent: (one) => ids.push(one.id),
    onState: (state) => states.push(state),
    onRefused,
    open: (url) => new FakeSource(url),
  });
  return { states, ids, stream, onRefused };
}

const latest = () => FakeSource.opened.at(-1) as FakeSource;

beforeEach(() => {
  vi.useFakeTimers();
  FakeSource.opened = [];
});
afterEach(() => vi.useRealTimers());

describe("follow", () => {
  it("hands on events and ends with the search", () => {
    const { states, ids } = start();
    latest().open();
    latest().send(1, "search.started");
    latest().send(2, "node.judged");
    latest().send(3, "search.finished");
    expect(ids).toEqual([1, 2, 3]);
    expect(states).toEqual(["connecting", "live", "ended"]);
    expect(latest().closed).toBe(true);
    latest().fail(2);
    vi.runAllTimers();
    expect(FakeSource.opened).toHaveLength(1);
  });

  it("leaves a dropped connection to the browser, and drops what comes twice", () => {
    const { states, ids } = start();
    latest().open();
    latest().send(5, "node.coded");
    latest().fail(0);
    expect(states.at(-1)).toBe("reconnecting");
    vi.runAllTimers();
    expect(FakeSource.opened).toHaveLength(1);
    latest().open();
    latest().send(5, "node.coded");
    latest().send(6, "node.judged");
    expect(states.at(-1)).toBe("live");
    expect(ids).toEqual([5, 6]);
  });

  it("opens a new one after what was seen where the browser gave up, with growing waits", () => {
    start();
    latest().open();
    latest().send(7, "node.judged");
    latest().fail(2);
    vi.advanceTimersByTime(999);
    expect(FakeSource.opened).toHaveLength(1);
    vi.advanceTimersByTime(1);
    expect(latest().url).toBe("/v1/searches/sr_1/events?after=7");
    latest().fail(2);
    vi.advanceTimersByTime(1999);
    expect(FakeSource.opened).toHaveLength(2);
    vi.advanceTimersByTime(1);
    expect(FakeSource.opened).toHaveLength(3);
  });

  it("tells that the service refused, not that a connection dropped", () => {
    const { onRefused } = start();
    latest().open();
    latest().fail(0);
    expect(onRefused).not.toHaveBeenCalled();
    latest().fail(2);
    expect(onRefused).toHaveBeenCalledOnce();
  });

  it("opens nothing more once closed", () => {
    const { stream } = start();
    latest().fail(2);
    stream.close();
    vi.runAllTimers();
    expect(FakeSource.opened).toHaveLength(1);
  });
});

describe("Freshener", () => {
  it("has what many events touch read again once", async () => {
    const client = new QueryClient();
    client.setQueryData(keys.node("nd_1"), {});
    const invalidate = vi.spyOn(client, "invalidateQueries").mockResolvedValue();
    const freshener = new Freshener(client, "sr_1");
    for (let id = 1; id <= 50; id++) freshener.note(event(id, "node.judged", id % 2 ? "nd_1" : "nd_2"));
    await vi.advanceTimersByTimeAsync(300);
    const asked = invalidate.mock.calls.map(([filter]) => filter?.queryKey);
    expect(asked).toEqual([keys.search("sr_1"), keys.tree("sr_1"), keys.story("sr_1"), keys.node("nd_1")]);
  });

  it("waits for what it asked for before it asks again", async () => {
    const client = new QueryClient();
    let arrive = () => {};
    const invalidate = vi
      .spyOn(client, "invalidateQueries")
      .mockImplementation(() => new Promise((resolve) => (arrive = resolve)));
    const freshener = new Freshener(client, "sr_1");
    freshener.note(event(1, "node.judged"));
    await vi.advanceTimersByTimeAsync(300);
    const once = invalidate.mock.calls.length;
    freshener.note(event(2, "node.judged"));
    await vi.advanceTimersByTimeAsync(60_000);
    expect(invalidate).toHaveBeenCalledTimes(once);
    arrive();
  });
});
