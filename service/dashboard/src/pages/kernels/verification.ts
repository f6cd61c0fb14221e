import type { Schemas } from "../../api/client";
import type { Tone } from "../../design";

type Verification = Schemas["Verification"];

interface State {
  tone: Tone;
  word: string;
  says: string;
}

/** Whether a verification still says something here, in words. */
export function verificationInWords(verification: Verification | null | undefined): State {
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
