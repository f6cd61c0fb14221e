/** The search for inputs on which a candidate is wrong and PyTorch right, in words. Pure. */

export interface AttackSummary {
  tries: number;
  /** A multiple of what is allowed; text where JSON has no number for it, null where no question was fair. */
  ratio: number | string | null;
  found: boolean;
  skipped?: string | null | undefined;
}

/** One line: `Counterexample search: 912 tries, worst error 0.43 of what is allowed`; null where none was made. */
export function attackInWords(attack: AttackSummary | null | undefined): string | null {
  if (!attack) return null;
  const head = "Counterexample search:";
  if (attack.skipped) return `${head} not made, ${attack.skipped}`;
  const tries = `${attack.tries.toLocaleString("en-GB")} ${attack.tries === 1 ? "try" : "tries"}`;
  if (attack.found) return `${head} wrong values found, ${tries}`;
  if (attack.ratio === null) return `${head} ${tries}, no question was fair`;
  return `${head} ${tries}, worst error ${share(attack.ratio)} of what is allowed`;
}

function share(ratio: number | string): string {
  return typeof ratio === "string" ? ratio : String(Number(ratio.toPrecision(2)));
}
