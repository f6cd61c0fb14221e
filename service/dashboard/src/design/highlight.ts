import { parseMixed } from "@lezer/common";
import { parser as cpp } from "@lezer/cpp";
import { highlightTree, tagHighlighter, tags } from "@lezer/highlight";
import { parser as python } from "@lezer/python";

export type CodeLanguage = "python" | "cpp" | "text";

export interface Token {
  text: string;
  kind: string | null;
}

const LARGEST = 400_000;

/** The kinds of tokens, which are also class names of Code and of Editor. */
export const highlighter = tagHighlighter([
  { tag: [tags.keyword, tags.modifier, tags.controlKeyword, tags.operatorKeyword], class: "keyword" },
  { tag: [tags.string, tags.character, tags.special(tags.string)], class: "string" },
  { tag: [tags.number, tags.bool, tags.null], class: "number" },
  { tag: tags.comment, class: "comment" },
  {
    tag: [tags.typeName, tags.className, tags.standard(tags.typeName), tags.processingInstruction],
    class: "type",
  },
  {
    tag: [
      tags.function(tags.variableName),
      tags.function(tags.definition(tags.variableName)),
      tags.propertyName,
    ],
    class: "name",
  },
]);

const TRIPLE = /^[A-Za-z]{0,2}("""|''')/;
const KERNEL = /__global__|__device__|extern\s+"C"|#\s*(include|pragma|define)\b/;

/** Python whose long strings are read as C++ where they hold kernels: that is how a candidate carries them. */
const candidate = python.configure({
  wrap: parseMixed((node, input) => {
    if (node.name !== "String") return null;
    const text = input.read(node.from, node.to);
    const quotes = TRIPLE.exec(text)?.[0].length;
    if (!quotes || !KERNEL.test(text)) return null;
    return {
      parser: cpp,
      overlay: [{ from: node.from + quotes, to: Math.max(node.from + quotes, node.to - 3) }],
    };
  }),
});

/** Lines of tokens. Text without a grammar, or too long to parse at once, is one plain token a line. */
export function highlightLines(code: string, language: CodeLanguage): Token[][] {
  const lines: Token[][] = [[]];
  function put(text: string, kind: string | null) {
    for (const [at, part] of text.split("\n").entries()) {
      if (at > 0) lines.push([]);
      if (part) lines.at(-1)?.push({ text: part, kind });
    }
  }
  if (language === "text" || code.length > LARGEST) {
    put(code, null);
    return lines;
  }
  let at = 0;
  highlightTree((language === "cpp" ? cpp : candidate).parse(code), highlighter, (from, to, kind) => {
    if (from > at) put(code.slice(at, from), null);
    put(code.slice(from, to), kind);
    at = to;
  });
  put(code.slice(at), null);
  return lines;
}
