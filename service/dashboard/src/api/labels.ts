/** Names, tags, notes, archive and deletion of searches. */

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { answer, api, type Schemas } from "./client";
import { keys } from "./queries";

export type Labels = Pick<Schemas["SearchChange"], "name" | "tags" | "notes" | "archived">;

/** Sets labels of one search or of several; those not named stay. */
export function useLabels() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ ids, labels }: { ids: readonly string[]; labels: Labels }) =>
      Promise.all(
        ids.map((id) =>
          answer(
            api.PATCH("/v1/searches/{search_id}", { params: { path: { search_id: id } }, body: labels }),
          ),
        ),
      ),
    onSuccess: (documents) => {
      for (const document of documents) client.setQueryData(keys.search(document.id), document);
    },
    onSettled: () => client.invalidateQueries({ queryKey: ["searches"] }),
  });
}

/** Deletes searches that have ended; tells which kernels stay. */
export function useDeleteSearches() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: async (ids: readonly string[]) => {
      const gone = await Promise.all(
        ids.map((id) =>
          answer(api.DELETE("/v1/searches/{search_id}", { params: { path: { search_id: id } } })),
        ),
      );
      return gone.flatMap(({ kernels }) => kernels);
    },
    onSettled: () => {
      void client.invalidateQueries({ queryKey: ["searches"] });
      void client.invalidateQueries({ queryKey: ["kernels"] });
    },
  });
}

/** The tags in use. */
export function useTags() {
  return useQuery({
    queryKey: ["searches", "tags"],
    queryFn: ({ signal }) => answer(api.GET("/v1/searches/tags", { signal })),
  });
}
