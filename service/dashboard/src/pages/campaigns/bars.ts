/** A model's time as bars: as it is, compiled and divided by its regions, and with the kernels that stay. Pure. */

import type { CampaignDocument, CampaignRegion } from "../../api/campaigns";
import type { Tone } from "../../design";

/** What became of a region; the rest is what no region of the set without overlap has. */
export type Fate = "stays" | "no gain" | "searching" | "not searched" | "rest";

export const TONES: Readonly<Record<Exclude<Fate, "rest">, Tone>> = {
  stays: "ok",
  "no gain": "warn",
  searching: "accent",
  "not searched": "wait",
};

export interface Part {
  key: string;
  name: string;
  /** Of the bar, from 0 to 1. */
  share: number;
  fate: Fate;
}

export interface Bar {
  label: string;
  ms: number;
  parts: readonly Part[];
}

export function fateOf({ kept, reason, search_id }: CampaignRegion): Exclude<Fate, "rest"> {
  if (kept) return "stays";
  if (reason === null || reason === undefined) return "searching";
  return search_id ? "no gain" : "not searched";
}

/**
 * The compiled model's time by its regions without overlap, the longest first, and the rest. Regions were timed alone:
 * where they took longer together than the model, the bar is theirs.
 */
export function partsOf(campaign: CampaignDocument): Part[] {
  const { profile, regions = [] } = campaign.progress;
  if (!profile) return [];
  const timed = regions
    .filter(({ counted = 0 }) => counted > 0)
    .map((region) => ({ region, us: (region.time_us / region.count) * (region.counted ?? 0) }))
    .sort((a, b) => b.us - a.us);
  const together = timed.reduce((sum, { us }) => sum + us, 0);
  const whole = Math.max(profile.compiled_us, together);
  if (whole <= 0) return [];
  const parts = timed.map(
    ({ region, us }): Part => ({
      key: region.name,
      name: region.operators,
      share: us / whole,
      fate: fateOf(region),
    }),
  );
  const rest = (whole - together) / whole;
  return rest > 0 ? [...parts, { key: "", name: "everything else", share: rest, fate: "rest" }] : parts;
}

/** Before and after, as far as it was measured. */
export function barsOf(campaign: CampaignDocument): Bar[] {
  const bar = (label: string, ms: number | null | undefined, parts: readonly Part[] = []): Bar[] =>
    ms === null || ms === undefined ? [] : [{ label, ms, parts }];
  return [
    ...bar("As it is", campaign.before_ms),
    ...bar("torch.compile", campaign.compiled_ms, partsOf(campaign)),
    ...(campaign.kept > 0 ? bar("With kernels", campaign.after_ms) : []),
  ];
}
