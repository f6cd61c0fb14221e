import { useState } from "react";
import type { NodeDocument } from "../../../api/queries";
import { Button, Checkbox, Code, download, EmptyState, format, Untrusted } from "../../../design";
import { linesOf } from "../../../design/diff";
import styles from "./Node.module.css";

const TOLD = new TextEncoder();

/** The candidate: one Python file, with the kernels that it holds. */
export function CodeView({ node }: { node: NodeDocument }) {
  const [wrap, setWrap] = useState(false);
  const { source } = node;
  if (!source) {
    return (
      <EmptyState title="No code yet">
        {node.seq === 0
          ? "The reference is part of the op's spec."
          : node.state === "closed"
            ? "The node was closed before code was written for it."
            : "It comes when a model, or a person or an agent in its place, has written it."}
      </EmptyState>
    );
  }
  return (
    <div className={styles.stack}>
      <div className={styles.toolbar}>
        <span className={styles.muted}>
          <Untrusted text={node.language} /> · {format.count(linesOf(source).length)} lines ·{" "}
          {format.bytes(TOLD.encode(source).length)}
        </span>
        <div className={styles.row}>
          <Checkbox
            label="Wrap lines"
            checked={wrap}
            onChange={(event) => setWrap(event.currentTarget.checked)}
          />
          <Button onClick={() => download(`node-${node.seq}.py`, source, "text/x-python")}>Download</Button>
        </div>
      </div>
      <Code code={source} language="python" label={`Code of node ${node.seq}`} wrap={wrap} />
    </div>
  );
}
