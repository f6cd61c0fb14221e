/** Campaigns: read again while one of them goes on, for its client stores each stage. */

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { answer, api, type Schemas } from "./client";
import { keys } from "./queries";

export type CampaignSummary = Schemas["CampaignSummary"];
export type CampaignDocument = Schemas["CampaignDocument"];
export type CampaignRegion = Schemas["CampaignRegion"];

const LOOK_AGAIN_MS = 5000;
const ITEMS = 50;

const goesOn = ({ state, stopped }: CampaignSummary) => state !== "finished" && stopped === null;

/** One page of campaigns, newest first. */
export function useCampaigns(after: string | null) {
  const query = { limit: ITEMS, ...(after === null ? {} : { after }) };
  return useQuery({
    queryKey: keys.campaigns(after),
    queryFn: ({ signal }) => answer(api.GET("/v1/campaigns", { params: { query }, signal })),
    refetchInterval: ({ state }) => (state.data?.items.some(goesOn) ? LOOK_AGAIN_MS : false),
    placeholderData: keepPreviousData,
  });
}

export function useCampaign(id: string) {
  return useQuery({
    queryKey: keys.campaign(id),
    queryFn: ({ signal }) =>
      answer(api.GET("/v1/campaigns/{campaign_id}", { params: { path: { campaign_id: id } }, signal })),
    refetchInterval: ({ state }) => (state.data && state.data.state !== "finished" ? LOOK_AGAIN_MS : false),
  });
}
