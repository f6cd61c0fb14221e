import type { NodeDocument } from "../../../api/queries";
import { format } from "../../../design";

/** A part of an idea as text; what is no text is not there. */
export function part(idea: NodeDocument["idea"], name: string): string {
  const value = idea?.[name];
  return typeof value === "string" ? value.trim() : "";
}

const ORIGINS: Readonly<Record<string, string>> = {
  model: "A model's idea",
  person: "A person's idea",
  stored: "A kernel that was kept before",
  branch: "The candidate that this search was branched from",
  joined: "Put together from candidates that win on different workloads",
};

/** Where a node comes from, in words. */
export function originInWords(node: Pick<NodeDocument, "seq" | "origin" | "technique">): string {
  if (node.seq === 0) return "The op's reference in PyTorch";
  return ORIGINS[node.origin ?? "model"] ?? format.words(node.origin);
}

/** What wrote the code: the model of the latest call that did, or who answered in its place. */
export function writtenBy(node: Pick<NodeDocument, "model_calls">): string | null {
  const call = node.model_calls.findLast(
    ({ kind, reply }) => reply !== null && ["code", "repair"].includes(kind),
  );
  if (!call) return null;
  return call.model ? `${call.model} (${call.provider})` : call.provider;
}
