/** Changes of a running search beyond pause, resume and cancel. */

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { answer, api, type Schemas } from "./client";
import { keys } from "./queries";

export type BundleSummary = Schemas["BundleSummary"];

/** Sets limits; null lifts one, and those not named stay. */
export function useChangeBudget(searchId: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (budget: Record<string, number | null>) =>
      answer(
        api.PATCH("/v1/searches/{search_id}", {
          params: { path: { search_id: searchId } },
          body: { budget },
        }),
      ),
    onSuccess: (document) => {
      client.setQueryData(keys.search(searchId), document);
      void client.invalidateQueries({ queryKey: [...keys.search(searchId), "progress"] });
      void client.invalidateQueries({ queryKey: ["searches"] });
    },
  });
}

export function useBundles(searchId: string) {
  return useQuery({
    queryKey: [...keys.search(searchId), "bundles"],
    queryFn: ({ signal }) =>
      answer(api.GET("/v1/bundles", { params: { query: { search_id: searchId } }, signal })),
  });
}

/** Gives a bundle's jobs back to the queue. */
export function useDropBundle(searchId: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (bundleId: string) =>
      answer(api.DELETE("/v1/bundles/{bundle_id}", { params: { path: { bundle_id: bundleId } } })),
    onSettled: () => void client.invalidateQueries({ queryKey: keys.search(searchId) }),
  });
}
