/** What the judge says of a failure, in words. Pure. */

import type { FailureDocument } from "../../../api/node";
import { format } from "../../../design";

const DIGITS = 4;
const MOST_DIGITS = 17;

/** A value as the judge wrote it: numbers in four digits, and what JSON cannot say (`nan`, `inf`) as the text it is. */
export function shown(value: unknown): string {
  return inDigits(value, DIGITS);
}

function inDigits(value: unknown, digits: number): string {
  if (value === null || value === undefined) return format.NONE;
  if (typeof value === "number") return figure(value, digits);
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Two values with as many digits as tell them from each other: what differs never looks alike. */
export function apart(one: unknown, other: unknown): [string, string] {
  for (let digits = DIGITS; ; digits++) {
    const texts: [string, string] = [inDigits(one, digits), inDigits(other, digits)];
    if (texts[0] !== texts[1] || one === other || digits >= MOST_DIGITS) return texts;
  }
}

function figure(value: number, digits: number): string {
  if (!Number.isFinite(value)) return String(value);
  if (value === 0) return "0";
  if (Number.isInteger(value) && Math.abs(value) < 1e9) return String(value);
  const size = Math.abs(value);
  if (size >= 1e-3 && size < 1e6) return String(Number(value.toPrecision(digits)));
  return value.toExponential(digits - 2).replace(/\.?0+e/, "e");
}

/** The element that is furthest off: `y[3, 5]`. */
export function element(failure: FailureDocument): string | null {
  if (!failure.tensor) return null;
  return failure.index ? `${failure.tensor}[${failure.index.join(", ")}]` : failure.tensor;
}

/** How far the worst element is off, as a multiple of what was allowed; null where that says nothing. */
export function excess(failure: Pick<FailureDocument, "expected" | "found" | "limit">): number | null {
  const [expected, found, limit] = [failure.expected, failure.found, failure.limit].map(number);
  if (expected == null || found == null || !limit) return null;
  return Math.abs(found - expected) / limit;
}

/** A number that JSON may have brought as text; null for what is none. */
export function number(value: unknown): number | null {
  if (typeof value === "number") return value;
  if (value === "inf") return Number.POSITIVE_INFINITY;
  if (value === "-inf") return Number.NEGATIVE_INFINITY;
  return null;
}

/** Kinds of a failure that are about values of an output. */
const OF_VALUES = new Set(["wrong_value", "counterexample", "non_finite", "not_written"]);

/** What went wrong, as the end of a sentence, without a full stop. */
export function failureInWords(failure: FailureDocument): string {
  const where = element(failure);
  if (!OF_VALUES.has(failure.kind) || !where) return failure.message;
  const inputs = failure.family ? ` (inputs: ${format.words(failure.family)})` : "";
  const place = failure.workload ? ` on workload ${failure.workload}${inputs}` : inputs;
  if (failure.kind === "not_written") return `${where}${place} was not written${wrongShare(failure)}`;
  if (failure.found === null || failure.found === undefined) return failure.message;
  const within = number(failure.limit) ? `, within ${shown(failure.limit)}` : "";
  const [found, expected] = apart(failure.found, failure.expected);
  return `${where}${place} is ${found} where ${expected} is expected${within}${wrongShare(failure)}`;
}

function wrongShare({ wrong_elements: wrong, elements }: FailureDocument): string {
  if (!wrong || !elements) return "";
  return `; ${format.count(wrong)} of ${format.count(elements)} elements are wrong`;
}

/** A share of a limit: in percent as far as it is kept, beyond it in limits. */
export function limits(share: number): string {
  if (!Number.isFinite(share)) return "without bound";
  return share <= 1
    ? format.percent(share)
    : `${Number(share.toPrecision(3)).toLocaleString("en-GB")} limits`;
}

/** An error as a share of what was allowed; null where either is unknown or the op has its own tolerance. */
export function shareOfLimit(error: unknown, limit: unknown): number | null {
  const [found, allowed] = [number(error), number(limit)];
  return found === null || allowed === null || allowed <= 0 ? null : found / allowed;
}
