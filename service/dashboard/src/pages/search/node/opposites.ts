import type { NodeDocument } from "../../../api/queries";
import { visible } from "../../../design";

/** A side to compare a node's code with. */
export interface Opposite {
  key: string;
  label: string;
  /** The head of its column. */
  short: string;
  /** Where the code is to be asked for; of an earlier version of this node it is at hand. */
  nodeId: string | null;
  seq: number | null;
  source?: string;
}

/** What a node's code can be compared with: what was judged before a repair, its parent, the champion. */
export function opposites(node: NodeDocument): Opposite[] {
  const found: Opposite[] = [];
  const earlier = [...new Set(node.verdicts.map(({ source }) => source))].filter(
    (source): source is string => Boolean(source) && source !== node.source,
  );
  for (const [at, source] of earlier.entries()) {
    const version = at === earlier.length - 1 ? "Before the latest repair" : `Version ${at + 1}`;
    found.unshift({
      key: `version-${at}`,
      label: `${version}, as it was judged`,
      short: version,
      nodeId: null,
      seq: node.seq,
      source,
    });
  }
  const { parent, champion } = node;
  if (parent) found.push(of("parent", "Parent", parent));
  if (champion && champion.id !== node.id && champion.id !== parent?.id)
    found.push(of("champion", "Champion", champion));
  return found;
}

function of(key: string, role: string, { id, seq, title }: NonNullable<NodeDocument["parent"]>): Opposite {
  const name = title ? visible(title) : "Reference";
  return { key, label: `${role}: #${seq} ${name}`, short: `${role} #${seq}`, nodeId: id, seq };
}
