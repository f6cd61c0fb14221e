import type { LiveState } from "../../api/live";
import { Badge } from "../../design";
import styles from "./Search.module.css";

const WORDS = {
  connecting: { tone: "wait", text: "Connecting" },
  live: { tone: "ok", text: "Live" },
  reconnecting: { tone: "warn", text: "Reconnecting" },
} as const;

/** How the connection is, said aloud when it changes; nothing once the search has ended. */
export function LiveBadge({ state }: { state: LiveState }) {
  return (
    <span role="status">
      {state !== "ended" && <Badge tone={WORDS[state].tone}>{WORDS[state].text}</Badge>}
    </span>
  );
}

/** What is safe while the connection is gone. */
export function ConnectionNote({ state }: { state: LiveState }) {
  if (state !== "reconnecting") return null;
  return (
    <p className={styles.reconnecting}>
      The connection to the service is gone, and is tried again by itself. The search goes on without this
      page, and nothing is lost: what happens meanwhile is shown once it is back.
    </p>
  );
}
