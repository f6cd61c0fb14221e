/** What is written for an ask, kept on this machine until it is sent. */

const PREFIX = "warpsmith-answer:";
const NAME = "warpsmith-answer-name";
const MOST = 40;

type Store = Pick<Storage, "getItem" | "setItem" | "removeItem" | "key" | "length">;

interface Draft {
  text: string;
  /** Milliseconds since the epoch. */
  savedAt: number;
}

export function readDraft(askId: string, store: Store = localStorage): Draft | null {
  try {
    const kept: unknown = JSON.parse(store.getItem(PREFIX + askId) ?? "null");
    return isDraft(kept) ? kept : null;
  } catch {
    return null; // storage is refused, or holds something else
  }
}

/** Keeps a draft, without the oldest ones beyond a few dozen; false where the browser would not. */
export function writeDraft(
  askId: string,
  text: string,
  now = Date.now(),
  store: Store = localStorage,
): boolean {
  try {
    if (text === "") {
      store.removeItem(PREFIX + askId);
      return true;
    }
    store.setItem(PREFIX + askId, JSON.stringify({ text, savedAt: now } satisfies Draft));
    prune(store);
    return true;
  } catch {
    return false;
  }
}

export function dropDraft(askId: string, store: Store = localStorage): void {
  try {
    store.removeItem(PREFIX + askId);
  } catch {
    // It was never kept then.
  }
}

export function readName(store: Store = localStorage): string {
  try {
    return store.getItem(NAME) ?? "";
  } catch {
    return "";
  }
}

export function writeName(name: string, store: Store = localStorage): void {
  try {
    store.setItem(NAME, name);
  } catch {
    // It is asked for again next time.
  }
}

function prune(store: Store): void {
  const kept = Array.from({ length: store.length }, (_, at) => store.key(at))
    .filter((key): key is string => key?.startsWith(PREFIX) ?? false)
    .map((key) => ({ key, savedAt: readDraft(key.slice(PREFIX.length), store)?.savedAt ?? 0 }))
    .sort((a, b) => b.savedAt - a.savedAt);
  for (const { key } of kept.slice(MOST)) store.removeItem(key);
}

function isDraft(value: unknown): value is Draft {
  return (
    typeof value === "object" &&
    value !== null &&
    typeof (value as Partial<Draft>).text === "string" &&
    typeof (value as Partial<Draft>).savedAt === "number"
  );
}
