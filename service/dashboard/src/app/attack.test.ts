import { expect, it } from "vitest";
import { attackInWords } from "./attack";

it("says in one line what a counterexample search came to", () => {
  const good = { tries: 1912, ratio: 0.4321, found: false };
  expect(attackInWords(good)).toBe("Counterexample search: 1,912 tries, worst error 0.43 of what is allowed");
  expect(attackInWords({ ...good, tries: 1, ratio: null })).toBe(
    "Counterexample search: 1 try, no question was fair",
  );
  expect(attackInWords({ ...good, ratio: "inf", found: true })).toBe(
    "Counterexample search: wrong values found, 1,912 tries",
  );
  expect(attackInWords({ ...good, skipped: "no CUDA device" })).toBe(
    "Counterexample search: not made, no CUDA device",
  );
  expect(attackInWords(null)).toBeNull();
});
