/** What a node's page asks for beyond the node itself. Every key begins with the node's, so that its events freshen all. */

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { answer, answerOrNull, api, type Schemas } from "./client";
import { keys } from "./queries";

export type ReportDocument = Schemas["ReportDocument"];
export type WorkloadReport = Schemas["WorkloadReport"];
export type FailureDocument = Schemas["FailureDocument"];
export type Roofline = Schemas["Roofline"];
export type RooflinePoint = Schemas["RooflinePoint"];
export type Timing = Schemas["Timing"];
export type NodeReference = Schemas["NodeReference"];
export type ModelCallDocument = Schemas["ModelCallDocument"];
export type ProfileDocument = Schemas["ProfileDocument"];
export type IdeaRequest = Schemas["IdeaRequest"];

/** A verdict in full, by default the one that the node stands by; null where nothing was judged. */
export function useReport(nodeId: string, verdictId: string | null, judged: boolean) {
  return useQuery({
    queryKey: [...keys.node(nodeId), "report", verdictId],
    queryFn: ({ signal }) => {
      const query = verdictId === null ? {} : { verdict: verdictId };
      const call = api.GET("/v1/nodes/{node_id}/report", {
        params: { path: { node_id: nodeId }, query },
        signal,
      });
      return verdictId === null ? answerOrNull(call) : answer(call);
    },
    enabled: judged,
  });
}

/** Another node's code, to compare with. */
export function useSource(nodeId: string | null) {
  return useQuery({
    queryKey: [...keys.node(nodeId ?? ""), "source"],
    queryFn: ({ signal }) =>
      answer(api.GET("/v1/nodes/{node_id}/source", { params: { path: { node_id: nodeId ?? "" } }, signal })),
    enabled: nodeId !== null,
  });
}

/** Has a judge profile the node's candidate; one that is under way is answered. */
export function useRequestProfile(nodeId: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: () =>
      answer(api.POST("/v1/nodes/{node_id}/profile", { params: { path: { node_id: nodeId } } })),
    onSuccess: (profile) => client.setQueryData(keys.profile(nodeId), profile),
  });
}

/** The Chrome trace of the node's latest profile. */
export async function fetchTrace(nodeId: string): Promise<Record<string, unknown> | null> {
  const profile = await answer(
    api.GET("/v1/nodes/{node_id}/profile", {
      params: { path: { node_id: nodeId }, query: { trace: true } },
    }),
  );
  return profile.trace;
}

/** A new search whose tree begins with this node's candidate. */
export function useBranch(nodeId: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ key, budget }: { key: string; budget: Record<string, unknown> | null }) =>
      answer(
        api.POST("/v1/nodes/{node_id}/branch", {
          params: { path: { node_id: nodeId }, header: { "Idempotency-Key": key } },
          body: budget ? { budget } : {},
        }),
      ),
    onSuccess: () => void client.invalidateQueries({ queryKey: ["searches"] }),
  });
}

/** An idea of a person's own, to be built on a node. */
export function useAddIdea(searchId: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ key, idea }: { key: string; idea: IdeaRequest }) =>
      answer(
        api.POST("/v1/searches/{search_id}/ideas", {
          params: { path: { search_id: searchId }, header: { "Idempotency-Key": key } },
          body: idea,
        }),
      ),
    onSuccess: (_, { idea }) => {
      void client.invalidateQueries({ queryKey: keys.tree(searchId) });
      if (idea.parent) void client.invalidateQueries({ queryKey: keys.node(idea.parent) });
    },
  });
}
