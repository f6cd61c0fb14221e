import { keepPreviousData, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { answer, api } from "../../api/client";
import { awaitImport, type ImportDocument } from "../../api/imports";
import { keys } from "../../api/queries";
import type { Submission } from "./submission";

const SETTLE_MS = 350;

/** A value once it has rested. */
export function useSettled<Value>(value: Value, waitMs = SETTLE_MS): Value {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), waitMs);
    return () => clearTimeout(timer);
  }, [value, waitMs]);
  return settled;
}

const KEPT_MS = 60_000;

/** What the service makes of a spec; a check that is overtaken by typing is given up. */
export function useCheckedSpec(text: string) {
  return useQuery({
    queryKey: ["checked", text],
    queryFn: ({ signal }) =>
      answer(
        api.POST("/v1/ops/validate", {
          body: text,
          bodySerializer: (spec: string) => spec,
          headers: { "Content-Type": "application/yaml" },
          signal,
        }),
      ),
    enabled: text.trim() !== "",
    staleTime: KEPT_MS,
    gcTime: KEPT_MS,
    placeholderData: keepPreviousData,
  });
}

/** What a submission would cost; nothing is stored and no model is asked. */
export function useEstimate(submission: Submission | null) {
  return useQuery({
    queryKey: ["estimate", submission],
    queryFn: ({ signal }) =>
      answer(api.POST("/v1/searches/estimate", { body: submission ?? unreachable(), signal })),
    enabled: submission !== null,
    staleTime: KEPT_MS,
    gcTime: KEPT_MS,
    placeholderData: keepPreviousData,
  });
}

/** Stores a pool file and brings the pool's id once a worker has read it; `progress` says how far that is. */
export function useStorePool() {
  const client = useQueryClient();
  const [progress, setProgress] = useState<ImportDocument | null>(null);
  const store = useMutation({
    mutationFn: async (file: File) => {
      const sent = await answer(
        api.POST("/v1/pools", {
          body: await file.text(),
          bodySerializer: (pool: string) => pool,
          headers: { "Content-Type": "application/x-ndjson" },
        }),
      );
      return (await awaitImport(sent, setProgress)).result?.pool_id ?? "";
    },
    onSuccess: () => client.invalidateQueries({ queryKey: keys.pools() }),
    onSettled: () => setProgress(null),
  });
  return { ...store, progress };
}

function unreachable(): never {
  throw new Error("a query without a submission is not enabled");
}
