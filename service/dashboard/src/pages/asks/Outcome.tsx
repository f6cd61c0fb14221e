import { Link } from "react-router";
import type { AskDocument } from "../../api/queries";
import { Card, format, StateBadge, Untrusted } from "../../design";
import styles from "./Asks.module.css";

/** What became of an answer: the step that used it, and then the node's verdict; it changes as it happens. */
export function Outcome({ ask }: { ask: AskDocument }) {
  const { step, node } = ask;
  const asked = ["ideate", "reflect"].includes(ask.kind);
  const toNode = `/searches/${encodeURIComponent(ask.search_id)}?node=${encodeURIComponent(ask.node_id)}`;
  return (
    <Card title="What became of it">
      <ol className={styles.outcome} aria-live="polite">
        <li>
          <StateBadge state="answered" /> The answer is in.
        </li>
        <li>
          <StateBadge state={step.state} /> {STEP[step.state] ?? `The step is ${format.words(step.state)}.`}{" "}
          <Untrusted text={step.error} />
        </li>
        {asked && step.state === "succeeded" && (
          <li>
            <StateBadge state="done" /> What it said is in the tree.{" "}
            <Link to={`/searches/${encodeURIComponent(ask.search_id)}`}>Look at the tree</Link>
          </li>
        )}
        {!asked && step.state === "succeeded" && (
          <li>
            <StateBadge state={node.verdict ?? node.state} />{" "}
            {node.verdict === null ? (
              UNJUDGED.has(node.state) ? (
                <>
                  The judge was not asked: <Untrusted text={node.reason ?? "no reason is known"} />.{" "}
                </>
              ) : (
                "The judge has not decided yet. The verdict comes here by itself. "
              )
            ) : (
              <>
                {node.verdict === "accepted" && (
                  <strong>{format.speedup(node.score, node.ci95)} over the fastest baseline </strong>
                )}
                at the gate {format.words(node.gate)}. <Untrusted text={node.reason} />{" "}
              </>
            )}
            <Link to={toNode}>Open #{node.seq}</Link>
          </li>
        )}
      </ol>
    </Card>
  );
}

/** States in which no verdict will come. */
const UNJUDGED = new Set(["closed", "failed", "banned"]);

const STEP: Readonly<Record<string, string>> = {
  waiting: "A worker takes it up next.",
  pending: "A worker takes it up next.",
  running: "A worker reads it.",
  succeeded: "It was read and used.",
  failed: "It could not be used.",
};
