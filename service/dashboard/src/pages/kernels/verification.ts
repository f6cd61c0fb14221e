import type { Schemas } from "../../api/client";
import type { Tone } from "../../design";

type Verification = Schemas["Verification"];
type Reverified = Schemas["Reverified"];

export interface State {
  tone: Tone;
  word: string;
  says: string;
}

/** Whether a verification still says something here, in words. */
export function verificationInWords(verification: Verification | null | undefined): State {
  if (verification?.outdated_protocol)
    return {
      tone: "warn",
      word: "older protocol",
      says:
        `Judged under protocol ${verification.protocol} of the judge, which checks more by now. ` +
        "Have it judged anew (warpsmith reverify) before you rely on it.",
    };
  switch (verification?.current) {
    case true:
      return {
        tone: "ok",
        word: "current",
        says: "Device, versions and protocol are still those of the latest verdict on this target.",
      };
    case false:
      return {
        tone: "warn",
        word: "outdated",
        says:
          "Since then the device, a version or the judge's protocol has changed. The values were right and the times true " +
          "then; have it judged anew before you rely on them.",
      };
    default:
      return {
        tone: "wait",
        word: "unknown",
        says: "Nothing was judged on this target that it could be held against.",
      };
  }
}

const DRIFTED: Readonly<Record<string, string>> = {
  wrong: "Judged anew, it gave wrong results. Its exports should not be used.",
  slower: "Judged anew, it was right and slower than its fastest baseline, beyond the noise.",
  uncompilable: "Judged anew, it no longer compiled.",
};

/** Whether a kernel still is what its evidence says: by the latest time that it was judged anew, if it ever was. */
export function standingInWords(
  verification: Verification | null | undefined,
  again: Reverified | null | undefined,
): State {
  const drift = again && DRIFTED[again.state];
  if (again && drift) return { tone: "bad", word: DRIFT_NAMES.get(again.state) ?? again.state, says: drift };
  if (again?.state !== "holds") return verificationInWords(verification);
  return again.due
    ? {
        tone: "warn",
        word: "due",
        says: "It held when it was last judged anew; since then something has changed, or it is long ago.",
      }
    : {
        tone: "ok",
        word: "holds",
        says: "Judged anew, it was right, and not slower than its fastest baseline.",
      };
}

/** What re-verifications come to, as people read it. */
export const DRIFT_NAMES: ReadonlyMap<string, string> = new Map([
  ["verified", "as kept"],
  ["holds", "holds"],
  ["drifted", "drifted"],
  ["wrong", "wrong"],
  ["slower", "slower"],
  ["uncompilable", "no longer compiles"],
]);
