/** What mattered in a search. */

import { useQuery } from "@tanstack/react-query";
import { answer, api, type Schemas } from "./client";

export type MatteredDocument = Schemas["MatteredDocument"];
export type SweptCandidate = Schemas["SweptCandidate"];
export type Importance = Schemas["ImportanceDocument"];

const AGAIN_MS = 15_000;

/**
 * Reads the sweeps of the search, so a running one is asked for it now and then, and not at each of its events; no
 * more while it is as it was at the last answer.
 */
export function useMattered(searchId: string, ended: boolean, updatedAt: number) {
  return useQuery({
    queryKey: ["mattered", searchId, ended], // read once more when it has ended
    queryFn: ({ signal }) =>
      answer(
        api.GET("/v1/searches/{search_id}/mattered", { params: { path: { search_id: searchId } }, signal }),
      ),
    refetchInterval: ({ state: { data } }) => (ended || data?.as_of === updatedAt ? false : AGAIN_MS),
    // of the same search: another one's is not shown in its place
    placeholderData: (last, query) => (query?.queryKey[1] === searchId ? last : undefined),
  });
}
