/** How a search went: its keys begin with the search's, so that its events freshen them. */

import { useQuery } from "@tanstack/react-query";
import { answer, api, type Schemas } from "./client";
import { keys } from "./queries";

export type ProgressDocument = Schemas["ProgressDocument"];
export type TimelineAttempt = Schemas["TimelineAttempt"];
export type WaitingFor = Schemas["WaitingFor"];

export function useProgress(searchId: string) {
  return useQuery({
    queryKey: [...keys.search(searchId), "progress"],
    queryFn: ({ signal }) =>
      answer(
        api.GET("/v1/searches/{search_id}/progress", { params: { path: { search_id: searchId } }, signal }),
      ),
  });
}

const PAGE = 2000;
const MOST = 10_000;

/** A search's attempts, oldest first; the first 10,000, which `whole` tells. */
export function useAttempts(searchId: string) {
  return useQuery({
    queryKey: [...keys.search(searchId), "attempts"],
    queryFn: async ({ signal }) => {
      const attempts: TimelineAttempt[] = [];
      let after: string | null = null;
      do {
        const page: Schemas["Page_TimelineAttempt_"] = await answer(
          api.GET("/v1/searches/{search_id}/attempts", {
            params: { path: { search_id: searchId }, query: { limit: PAGE, ...(after && { after }) } },
            signal,
          }),
        );
        attempts.push(...page.items);
        after = page.next ?? null;
      } while (after !== null && attempts.length < MOST);
      return { attempts, whole: after === null };
    },
  });
}
