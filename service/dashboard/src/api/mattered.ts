/** What mattered in a search. */

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { answer, api, type Schemas } from "./client";

export type MatteredDocument = Schemas["MatteredDocument"];
export type SweptCandidate = Schemas["SweptCandidate"];
export type Importance = Schemas["ImportanceDocument"];

const AGAIN_MS = 15_000;

/** Reads every sweep of the search, so a running one is asked for it now and then, and not at each of its events. */
export function useMattered(searchId: string, ended: boolean) {
  return useQuery({
    queryKey: ["mattered", searchId, ended], // read once more when it has ended
    queryFn: ({ signal }) =>
      answer(
        api.GET("/v1/searches/{search_id}/mattered", { params: { path: { search_id: searchId } }, signal }),
      ),
    refetchInterval: ended ? false : AGAIN_MS,
    placeholderData: keepPreviousData,
  });
}
