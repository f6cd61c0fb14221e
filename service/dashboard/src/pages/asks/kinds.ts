import type { EditorProps } from "../../design";

interface Kind {
  /** What is asked for. */
  what: string;
  language: EditorProps["language"];
  /** What the reply has to be. */
  form: string;
}

const OTHER: Kind = { what: "A reply", language: "text", form: "The prompt says which form the reply has." };
const IDEAS: Kind = {
  what: "Ideas",
  language: "json",
  form: "A JSON list of objects with the fields that the prompt names, and nothing after it.",
};
const CODE: Kind = {
  what: "A candidate",
  language: "python",
  form: "The whole Python file. Plain code is sent as one fenced block; a fenced block is sent as it is.",
};

const KINDS: Readonly<Record<string, Kind>> = {
  ideate: IDEAS,
  reflect: { ...IDEAS, what: "Lessons" },
  code: CODE,
  repair: { ...CODE, what: "A repaired candidate" },
};

export function kindOf(kind: string): Kind {
  return KINDS[kind] ?? OTHER;
}

const FENCE = /^ {0,3}(```|~~~)/m;

/** The reply as the prompt wants it: code that is not fenced yet becomes one fenced block. */
export function replyOf(kind: string, text: string): string {
  if (kindOf(kind).language !== "python" || FENCE.test(text)) return text;
  return `\`\`\`python\n${text.replace(/\n*$/, "")}\n\`\`\`\n`;
}

/** What is wrong with a list of ideas, before it is sent; the service reads it in full. */
export function complaintAbout(kind: string, text: string): string | null {
  if (kindOf(kind).language !== "json" || text.trim() === "" || FENCE.test(text)) return null;
  try {
    const value: unknown = JSON.parse(text);
    if (!Array.isArray(value)) return "This is JSON, but no list.";
    return value.length === 0 ? "The list is empty." : null;
  } catch (error) {
    return `This is not JSON: ${error instanceof Error ? error.message : String(error)}`;
  }
}
