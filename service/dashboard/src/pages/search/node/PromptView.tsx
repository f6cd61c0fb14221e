import { useState } from "react";
import type { ModelCallDocument } from "../../../api/node";
import type { NodeDocument } from "../../../api/queries";
import { Badge, Code, EmptyState, format, Time, Untrusted } from "../../../design";
import styles from "./Node.module.css";
import { NodeLink } from "./NodeLink";
import { Section } from "./Section";

/** Every request that went to a model for this node, and the raw reply. */
export function PromptView({ node }: { node: NodeDocument }) {
  const calls = node.model_calls;
  return (
    <div className={styles.stack}>
      {node.parent && node.origin === "model" && (
        <p className={styles.muted}>
          The idea itself was asked for at its parent, <NodeLink node={node.parent} />.
        </p>
      )}
      {calls.length === 0 && (
        <EmptyState title="No model was asked here">
          {node.seq === 0
            ? "Ideas are asked for here once the baselines are measured."
            : node.source
              ? "The candidate came as code: of a kernel that was kept, or of the search that this one was branched from."
              : "The request for code goes out when the node's turn comes."}
        </EmptyState>
      )}
      {calls.map((call) => (
        <Call key={call.id} call={call} />
      ))}
    </div>
  );
}

const KINDS: Readonly<Record<string, string>> = {
  ideate: "Ideas for children of this node",
  code: "Code for the idea",
  repair: "A repair of the code",
  reflect: "What was learnt so far",
};

function Call({ call }: { call: ModelCallDocument }) {
  return (
    <Section
      title={KINDS[call.kind] ?? format.words(call.kind)}
      actions={call.error !== null && <Badge tone="bad">failed</Badge>}
    >
      <dl className={styles.inlineFacts}>
        <div>
          <dt>Model</dt>
          <dd>
            <Untrusted text={call.model ?? call.provider} />
            {call.model && call.model !== call.provider && (
              <>
                {" "}
                (<Untrusted text={call.provider} />)
              </>
            )}
          </dd>
        </div>
        <div>
          <dt>Tokens</dt>
          <dd>
            {format.count(call.prompt_tokens)} in, {format.count(call.completion_tokens)} out
          </dd>
        </div>
        <div>
          <dt>Cost</dt>
          <dd>{format.money(call.cost_usd)}</dd>
        </div>
        <div>
          <dt>Latency</dt>
          <dd>{format.duration(call.latency_s)}</dd>
        </div>
        <div>
          <dt>When</dt>
          <dd>
            <Time at={call.created_at} />
          </dd>
        </div>
        {call.finish_reason && call.finish_reason !== "stop" && (
          <div>
            <dt>Ended by</dt>
            <dd>
              <Untrusted text={format.words(call.finish_reason)} />
            </dd>
          </div>
        )}
      </dl>
      {call.error !== null && (
        <p className={styles.bad}>
          <Untrusted text={call.error} />
        </p>
      )}
      {call.messages.map((message, at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: a message is its place
        <LongText key={at} name={`Message: ${asText(message.role)}`} text={asText(message.content)} />
      ))}
      {call.reply === null ? (
        <p className={styles.muted}>No reply.</p>
      ) : (
        <LongText name="Reply" text={call.reply} begin="open" />
      )}
    </Section>
  );
}

/** A message's part as it was sent; content in several parts is shown as the JSON it is. */
function asText(value: unknown): string {
  if (typeof value === "string") return value;
  return value === undefined || value === null ? "" : JSON.stringify(value, null, 2);
}

const SHORT = 600;

/** A text under its name and size, closed where it is long; it is laid out when it is first opened. */
function LongText({ name, text, begin }: { name: string; text: string; begin?: "open" }) {
  const [open, setOpen] = useState(begin === "open" || text.length <= SHORT);
  return (
    <details className={styles.details} open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <span>
          <Untrusted text={name} />
        </span>
        <span className={styles.muted}>{format.count(text.length)} characters</span>
      </summary>
      {open &&
        (text ? (
          <Code code={text} label={name} numbers={false} wrap />
        ) : (
          <p className={styles.muted}>Empty.</p>
        ))}
    </details>
  );
}
