import type { components } from "./schema";

interface BadField {
  field: string;
  found: unknown;
  expected: unknown;
}

/** A value of an error as a person reads it: a sentence as it is, and [64] as a list. */
export const inWords = (value: unknown): string =>
  typeof value === "string" ? value : JSON.stringify(value ?? null);

type ProblemDocument = components["schemas"]["ProblemDocument"];

/** What the service answered instead of what was asked for (RFC 9457), or that it did not answer. */
export class ProblemError extends Error {
  override readonly name = "ProblemError";

  constructor(
    /** 0 where no answer came. */
    readonly status: number,
    /** Stable; branch on it. */
    readonly type: string,
    readonly title: string,
    readonly detail: string,
    readonly errors: readonly BadField[] = [],
    readonly document: Partial<ProblemDocument> = {},
  ) {
    super(detail);
  }

  /** The error of one field, for the Field that shows it. */
  of(field: string): string | undefined {
    const found = this.errors.find((error) => error.field === field);
    return found && `found ${JSON.stringify(found.found ?? null)}, expected ${inWords(found.expected)}`;
  }

  static unreachable(cause: unknown): ProblemError {
    const problem = new ProblemError(
      0,
      "urn:warpsmith:dashboard:unreachable",
      "The service does not answer",
      "The page could not reach the service, and cannot tell whether workers go on. Try again in a moment.",
    );
    problem.cause = cause;
    return problem;
  }

  /** From a response that is not a success; a body that is no problem document still gives its status. */
  static async from(response: Response): Promise<ProblemError> {
    const body: unknown = await response.json().catch(() => null);
    return ProblemError.fromBody(response.status, body, response.statusText);
  }

  static fromBody(status: number, body: unknown, statusText = ""): ProblemError {
    const given = isRecord(body) ? (body as Partial<ProblemDocument>) : {};
    const title = given.title ?? (statusText || "The request failed");
    return new ProblemError(
      status,
      given.type ?? "about:blank",
      title,
      given.detail ?? `The service answered ${status} ${statusText}`.trim(),
      Array.isArray(given.errors) ? given.errors : [],
      given,
    );
  }
}

/** Whatever was thrown, as a problem. */
export function asProblem(error: unknown): ProblemError {
  if (error instanceof ProblemError) return error;
  const detail = error instanceof Error ? error.message : String(error);
  return new ProblemError(0, "urn:warpsmith:dashboard:error", "The page failed", detail);
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
