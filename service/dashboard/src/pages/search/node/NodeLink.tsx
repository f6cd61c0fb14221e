import { Link, useSearchParams } from "react-router";
import type { NodeReference } from "../../../api/node";
import { format, StateBadge, Untrusted } from "../../../design";
import { OF_ONE_NODE } from "../view";
import styles from "./Node.module.css";

/** A link to another node of the search that leaves tab and view as they are, or opens `view` of it. */
export function NodeLink({
  node,
  view,
}: {
  node: Pick<NodeReference, "id" | "seq" | "title">;
  view?: string;
}) {
  const [params] = useSearchParams();
  const next = new URLSearchParams(params);
  for (const name of Object.keys(OF_ONE_NODE)) next.delete(name);
  next.set("node", node.id);
  if (view) next.set("view", view);
  return (
    <Link to={{ search: `?${next}` }} preventScrollReset>
      #{node.seq} {node.title ? <Untrusted text={node.title} /> : "Reference"}
    </Link>
  );
}

/** Another node in a line: its link, its verdict, its speed-up. */
export function NodeLine({ node }: { node: NodeReference }) {
  return (
    <span className={styles.nodeLine}>
      <NodeLink node={node} />
      <StateBadge state={node.verdict ?? node.state} />
      {node.seq > 0 && node.score !== null && <span>{format.ratio(node.score)}</span>}
    </span>
  );
}
