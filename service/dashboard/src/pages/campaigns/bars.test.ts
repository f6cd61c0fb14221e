import { expect, it } from "vitest";
import type { CampaignDocument, CampaignRegion } from "../../api/campaigns";
import { barsOf, fateOf, partsOf } from "./bars";

function region(name: string, time_us: number, more: Partial<CampaignRegion> = {}): CampaignRegion {
  return {
    name,
    operators: name,
    places: ["layers.0"],
    count: 2,
    time_us,
    share: null,
    limit_us: 1,
    limit_by: "bytes",
    joins: 1,
    counted: 2,
    saving_us: 1,
    ...more,
  } as CampaignRegion;
}

function campaign(regions: CampaignRegion[], more: Partial<CampaignDocument> = {}): CampaignDocument {
  const profile = { device: "cpu", graphs: 1, model_us: 2000, compiled_us: 1000, saving_us: 1 };
  return {
    before_ms: 2,
    compiled_ms: 1,
    after_ms: null,
    kept: 0,
    progress: { state: "searching", profile, regions },
    ...more,
  } as CampaignDocument;
}

it("divides the compiled model's time by regions without overlap, the longest first", () => {
  const parts = partsOf(
    campaign([
      region("norm", 100),
      region("mlp", 500, { kept: true }),
      region("part of the mlp", 400, { counted: 0, reason: "it overlaps" }),
      region("half of them overlap", 200, { counted: 1, reason: "at its limit" }),
    ]),
  );
  expect(parts.map(({ name, share, fate }) => [name, share, fate])).toEqual([
    ["mlp", 0.5, "stays"],
    ["norm", 0.1, "searching"],
    ["half of them overlap", 0.1, "not searched"],
    ["everything else", 0.3, "rest"],
  ]);
});

it("has no rest where the regions alone took longer than the model", () => {
  const parts = partsOf(campaign([region("mlp", 1500), region("norm", 500)]));
  expect(parts.map(({ share }) => share)).toEqual([0.75, 0.25]);
});

it("knows what became of a region", () => {
  expect(fateOf(region("mlp", 1, { search_id: "sr_1" }))).toBe("searching");
  expect(fateOf(region("mlp", 1, { search_id: "sr_1", reason: "no kernel" }))).toBe("no gain");
  expect(fateOf(region("mlp", 1, { reason: "no spec" }))).toBe("not searched");
});

it("shows a bar for each time that is known, and kernels only where some are in place", () => {
  const labels = (found: CampaignDocument) => barsOf(found).map(({ label, ms }) => [label, ms]);
  const nothing = campaign([], { before_ms: null, compiled_ms: null });
  expect(labels({ ...nothing, progress: { state: "profiling" } } as CampaignDocument)).toEqual([]);
  const measured = campaign([], { after_ms: 0.8, kept: 1 });
  expect(labels(measured)).toEqual([
    ["As it is", 2],
    ["torch.compile", 1],
    ["With kernels", 0.8],
  ]);
  expect(labels({ ...measured, kept: 0 })).toHaveLength(2);
});
