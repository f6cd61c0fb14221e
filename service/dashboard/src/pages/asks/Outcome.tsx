import { Link } from "react-router";
import type { AskDocument } from "../../api/queries";
import { Badge, Card, format, StateBadge, Untrusted, UntrustedList } from "../../design";
import styles from "./Asks.module.css";
import { isUsable, PLANS } from "./kinds";

/** What became of an answer: the step that used it, and then the node's verdict; it changes as it happens. */
export function Outcome({ ask }: { ask: AskDocument }) {
  const { ideas } = ask;
  return (
    <Card title="What became of it">
      <ol className={styles.outcome} aria-live="polite">
        <li>
          <StateBadge state="answered" /> The answer is in.
        </li>
        {ideas && !isUsable(ask) ? (
          <Unusable ask={ask} reasons={ideas.left_out} />
        ) : (
          <>
            <Step ask={ask} />
            {ideas && <Ideas ask={ask} ideas={ideas} />}
            {ask.kind === "reflect" && ask.step.state === "succeeded" && <InTree ask={ask} />}
            {!PLANS.has(ask.kind) && ask.step.state === "succeeded" && <Judged ask={ask} />}
          </>
        )}
      </ol>
    </Card>
  );
}

function Step({ ask: { kind, step } }: { ask: AskDocument }) {
  // Code is all that its step asks for: where that waits again, it asked again.
  const waits = PLANS.has(kind)
    ? "The step waits for the answer to its next ask."
    : "The answer could not be used, and the same was asked again.";
  const said = step.state === "waiting" ? waits : STEP[step.state];
  return (
    <li>
      <StateBadge state={step.state} /> {said ?? `The step is ${format.words(step.state)}.`}{" "}
      <Untrusted text={step.error} />
    </li>
  );
}

/** That nothing of an answer with ideas was used, why, and what the search did then. */
function Unusable({ ask, reasons }: { ask: AskDocument; reasons: readonly string[] }) {
  const { step } = ask;
  return (
    <>
      <li>
        <Badge tone="bad">not used</Badge> The answer could not be used: none of it became a node.
        <UntrustedList texts={reasons} />
      </li>
      <li>
        <StateBadge state={step.state} />{" "}
        {AGAIN[step.state] ?? "The step ended without an answer it could use."}{" "}
        <Untrusted text={step.error} />{" "}
        <Link to={`/searches/${encodeURIComponent(ask.search_id)}?tab=asks`}>Open asks of the search</Link>
      </li>
    </>
  );
}

function Ideas({ ask, ideas }: { ask: AskDocument; ideas: NonNullable<AskDocument["ideas"]> }) {
  const { wanted, taken, left_out } = ideas;
  const done = ask.step.state === "succeeded";
  const became = done ? "became" : "will become";
  return (
    <li>
      <StateBadge state={done ? "done" : "read"} />{" "}
      {wanted === null
        ? format.count(taken.length)
        : `${format.count(taken.length)} of ${format.count(wanted)}`}{" "}
      {(wanted ?? taken.length) === 1 ? "idea" : "ideas"} {became} {taken.length === 1 ? "a node" : "nodes"}:
      <UntrustedList texts={taken} />
      {left_out.length > 0 && (
        <>
          Left out:
          <UntrustedList texts={left_out} />
        </>
      )}
      {done && <TreeLink ask={ask} />}
    </li>
  );
}

function InTree({ ask }: { ask: AskDocument }) {
  return (
    <li>
      <StateBadge state="done" /> What it said is in the tree. <TreeLink ask={ask} />
    </li>
  );
}

function TreeLink({ ask }: { ask: AskDocument }) {
  return <Link to={`/searches/${encodeURIComponent(ask.search_id)}`}>Look at the tree</Link>;
}

function Judged({ ask }: { ask: AskDocument }) {
  const { node } = ask;
  const toNode = `/searches/${encodeURIComponent(ask.search_id)}?node=${encodeURIComponent(ask.node_id)}`;
  return (
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
  );
}

/** States in which no verdict will come. */
const UNJUDGED = new Set(["closed", "failed", "banned"]);

const STEP: Readonly<Record<string, string>> = {
  pending: "A worker takes it up next.",
  running: "A worker reads it.",
  succeeded: "It was read and used.",
  failed: "It could not be used.",
};

/** What the search does about an answer that it cannot use, by the state of the step. */
const AGAIN: Readonly<Record<string, string>> = {
  pending: "The search says what was wrong with it, and asks again.",
  running: "The search says what was wrong with it, and asks again.",
  waiting: "The same was asked again, with what was wrong.",
  succeeded: "It was asked again, and a later answer was used.",
};
