/** Searches of one op beside each other. */

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { answer, api, type Schemas } from "./client";

export type ComparisonDocument = Schemas["ComparisonDocument"];
export type ComparedSearch = Schemas["ComparedSearch"];
export type TechniqueDocument = Schemas["TechniqueDocument"];

const AGAIN_MS = 10_000;
const GOES_ON = new Set(["queued", "running"]);

/** The comparison; read again while one of the searches goes on. */
export function useComparison(ids: readonly string[]) {
  return useQuery({
    queryKey: ["searches", "compare", ids],
    queryFn: ({ signal }) =>
      answer(api.GET("/v1/searches/compare", { params: { query: { search: [...ids] } }, signal })),
    enabled: ids.length > 1,
    refetchInterval: ({ state }) =>
      state.data?.searches.some(({ search }) => GOES_ON.has(search.state)) ? AGAIN_MS : false,
    placeholderData: keepPreviousData,
  });
}
