import type { AskDocument } from "../../api/queries";
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

/** Kinds whose answers make nodes below the ask's own, rather than the code of that one. */
export const PLANS: ReadonlySet<string> = new Set(["ideate", "reflect"]);

/**
 * Whether the search can use the answer, as far as the service says so: it reads ideas as the step does, so this is
 * known at once, and stays so when a later answer is used.
 */
export function isUsable({ ideas }: AskDocument): boolean {
  return !ideas || ideas.taken.length > 0;
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
