/** A kernel's re-verifications: asked for and read. Their key begins with the kernel's. */

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { answer, api, type Schemas } from "./client";
import { keys } from "./queries";

export type ReverificationSummary = Schemas["ReverificationSummary"];

const SHOWN = 20;
const LOOK_AGAIN_MS = 2000;

/** The newest first; looked at again while one is under way. When none is any more, the kernel is read anew. */
export function useReverifications(kernelId: string) {
  const client = useQueryClient();
  const query = useQuery({
    queryKey: [...keys.kernel(kernelId), "reverifications"],
    queryFn: ({ signal }) =>
      answer(
        api.GET("/v1/kernels/{kernel_id}/reverifications", {
          params: { path: { kernel_id: kernelId }, query: { limit: SHOWN } },
          signal,
        }),
      ),
    refetchInterval: ({ state }) =>
      state.data?.items.some((item) => item.state !== "done") ? LOOK_AGAIN_MS : false,
  });
  const underWay = query.data?.items.some((item) => item.state !== "done") ?? false;
  const before = useRef(underWay);
  useEffect(() => {
    if (before.current && !underWay) {
      void client.invalidateQueries({ queryKey: keys.kernel(kernelId), exact: true });
    }
    before.current = underWay;
  }, [client, kernelId, underWay]);
  return { query, underWay };
}

/** Has a judge verify the kernel anew; one that is under way is answered. */
export function useReverify(kernelId: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: () =>
      answer(api.POST("/v1/kernels/{kernel_id}/reverify", { params: { path: { kernel_id: kernelId } } })),
    onSuccess: () => client.invalidateQueries({ queryKey: keys.kernel(kernelId) }),
  });
}
