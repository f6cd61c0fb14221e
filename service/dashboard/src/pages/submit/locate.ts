/** Where in a spec's text a field stands. Pure; JSON is read as the YAML that it is. */

import { yamlLanguage } from "@codemirror/lang-yaml";
import type { SyntaxNode } from "@lezer/common";

/** `inputs[1].dtype` as its names and numbers. */
export function steps(field: string): (string | number)[] {
  return [...field.matchAll(/\[(\d+)\]|[^.[\]]+/g)].map(([whole, index]) =>
    index === undefined ? whole : Number(index),
  );
}

/**
 * The line (from 1) of a field, or of the innermost part around it that is there: a missing field is pointed to by what
 * lacks it. Null where not even the first name is found.
 */
export function lineOf(text: string, field: string): number | null {
  const path = steps(field);
  let node: SyntaxNode | null = yamlLanguage.parser.parse(text).topNode.getChild("Document");
  let place: SyntaxNode | null = null;
  for (const step of path) {
    const found = node && (typeof step === "number" ? itemOf(node, step) : pairOf(node, step, text));
    if (!found) break;
    place = found;
    node = found;
  }
  return place && text.slice(0, startOf(place, text)).split("\n").length;
}

/** Of a parse error, the line that its words name. */
export function lineInWords(words: string): number | null {
  const found = /\bline (\d+)/.exec(words)?.[1];
  return found === undefined ? null : Number(found);
}

const MAPPINGS = ["BlockMapping", "FlowMapping"];
const SEQUENCES = ["BlockSequence", "FlowSequence"];

function childOf(node: SyntaxNode, names: readonly string[]): SyntaxNode | null {
  if (names.includes(node.name)) return node;
  for (let child = node.firstChild; child; child = child.nextSibling) {
    if (names.includes(child.name)) return child;
    if (child.name === "Tagged" || child.name === "Anchored") return childOf(child, names);
  }
  return null;
}

function pairOf(node: SyntaxNode, name: string, text: string): SyntaxNode | null {
  const pairs = childOf(node, MAPPINGS)?.getChildren("Pair") ?? [];
  return (
    pairs.find((pair) => {
      const key = pair.getChild("Key");
      return key && text.slice(key.from, key.to).replace(/^(["'])(.*)\1$/, "$2") === name;
    }) ?? null
  );
}

function itemOf(node: SyntaxNode, index: number): SyntaxNode | null {
  return childOf(node, SEQUENCES)?.getChildren("Item")[index] ?? null;
}

/** The first character that is not white space: an item begins after its dash, which may be on the line above. */
function startOf(node: SyntaxNode, text: string): number {
  const blank = /^\s*/.exec(text.slice(node.from, node.to))?.[0].length ?? 0;
  return node.from + blank;
}
