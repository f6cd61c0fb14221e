/** Server state by route: one key and one hook each. Keys are in `keys`, so that events can find them. */

import {
  keepPreviousData,
  useInfiniteQuery,
  useMutation,
  useQuery,
  useQueryClient,
} from "@tanstack/react-query";
import { answer, answerOrNull, api, type Schemas } from "./client";
import { isOpen } from "./imports";
import type { paths } from "./schema";

export type SearchState = Schemas["SearchDocument"]["state"];
export type SearchSummary = Schemas["SearchSummary"];
export type SearchDocument = Schemas["SearchDocument"];
export type NodeSummary = Schemas["NodeSummary"];
export type NodeDocument = Schemas["NodeDocument"];
export type KernelSummary = Schemas["KernelSummary"];
export type KernelDocument = Schemas["KernelDocument"];
export type AskSummary = Schemas["AskSummary"];
export type AskDocument = Schemas["AskDocument"];
export type AskState = Schemas["AskSummary"]["state"];
export type WorkerDocument = Schemas["WorkerDocument"];
export type SystemDocument = Schemas["SystemDocument"];
export type OptionsDocument = Schemas["OptionsDocument"];

/** Filters, sort and page of a list, as the service takes them. */
export type SearchQuery = NonNullable<paths["/v1/searches"]["get"]["parameters"]["query"]>;
export type KernelQuery = NonNullable<paths["/v1/kernels"]["get"]["parameters"]["query"]>;

interface AskFilters {
  state?: AskState;
  search_id?: string;
}

export const keys = {
  searches: (query: SearchQuery = {}) => ["searches", query] as const,
  search: (id: string) => ["search", id] as const,
  tree: (id: string) => ["tree", id] as const,
  story: (id: string) => ["story", id] as const,
  node: (id: string) => ["node", id] as const,
  profile: (id: string) => ["profile", id] as const,
  campaigns: (after: string | null) => ["campaigns", after] as const,
  campaign: (id: string) => ["campaign", id] as const,
  kernels: (query: KernelQuery = {}) => ["kernels", query] as const,
  kernel: (id: string) => ["kernel", id] as const,
  asks: (filters: AskFilters = {}) => ["asks", filters] as const,
  ask: (id: string) => ["ask", id] as const,
  opNames: (having: string) => ["ops", "names", having] as const,
  op: (id: string) => ["op", id] as const,
  pools: () => ["pools"] as const,
  imports: () => ["imports"] as const,
  workers: () => ["workers"] as const,
  health: () => ["health"] as const,
  system: () => ["system"] as const,
  options: () => ["options"] as const,
  examples: () => ["examples"] as const,
};

const LISTS_EVERY_MS = 5000;
const ITEMS = 50;
const LATEST_IMPORTS = 10;

const following = { initialPageParam: undefined as string | undefined };

/** What `after` and the filters are as a query, without those that are not given. */
function listQuery<Filters extends object>(filters: Filters, after: string | undefined) {
  return { ...filters, limit: ITEMS, ...(after === undefined ? {} : { after }) };
}

const GOES_ON = new Set<SearchState>(["queued", "running"]);

/** One page of searches; read again while one of them goes on and the page is in view. */
export function useSearches(query: SearchQuery) {
  return useQuery({
    queryKey: keys.searches(query),
    queryFn: ({ signal }) => answer(api.GET("/v1/searches", { params: { query }, signal })),
    refetchInterval: ({ state }) =>
      state.data?.items.some((search) => GOES_ON.has(search.state)) ? LISTS_EVERY_MS : false,
    placeholderData: keepPreviousData,
  });
}

/** The rows of all loaded pages. */
export function items<Item>(data: { pages: readonly { items: Item[] }[] } | undefined): Item[] {
  return data?.pages.flatMap((page) => page.items) ?? [];
}

export function useSearch(id: string) {
  return useQuery({
    queryKey: keys.search(id),
    queryFn: ({ signal }) =>
      answer(api.GET("/v1/searches/{search_id}", { params: { path: { search_id: id } }, signal })),
  });
}

export function useStory(id: string) {
  return useQuery({
    queryKey: keys.story(id),
    queryFn: ({ signal }) =>
      answer(api.GET("/v1/searches/{search_id}/story", { params: { path: { search_id: id } }, signal })),
  });
}

export function useNode(id: string | null) {
  return useQuery({
    queryKey: keys.node(id ?? ""),
    queryFn: ({ signal }) =>
      answer(api.GET("/v1/nodes/{node_id}", { params: { path: { node_id: id ?? "" } }, signal })),
    enabled: id !== null,
  });
}

/** A node's latest profile; null where none was asked for. Looks again while one is made. */
export function useProfile(nodeId: string) {
  return useQuery({
    queryKey: keys.profile(nodeId),
    queryFn: ({ signal }) =>
      answerOrNull(api.GET("/v1/nodes/{node_id}/profile", { params: { path: { node_id: nodeId } }, signal })),
    refetchInterval: ({ state }) => (["pending", "running"].includes(state.data?.state ?? "") ? 2000 : false),
  });
}

/** One page of kernels. */
export function useKernels(query: KernelQuery) {
  return useQuery({
    queryKey: keys.kernels(query),
    queryFn: ({ signal }) => answer(api.GET("/v1/kernels", { params: { query }, signal })),
    placeholderData: keepPreviousData,
  });
}

export function useKernel(id: string) {
  return useQuery({
    queryKey: keys.kernel(id),
    queryFn: ({ signal }) =>
      answer(api.GET("/v1/kernels/{kernel_id}", { params: { path: { kernel_id: id } }, signal })),
  });
}

export function useAsks(filters: AskFilters = {}) {
  return useInfiniteQuery({
    queryKey: keys.asks(filters),
    queryFn: ({ pageParam, signal }) =>
      answer(api.GET("/v1/asks", { params: { query: listQuery(filters, pageParam) }, signal })),
    ...following,
    getNextPageParam: (page) => page.next ?? undefined,
    refetchInterval: LISTS_EVERY_MS,
    placeholderData: keepPreviousData,
  });
}

export function useAsk(id: string) {
  return useQuery({
    queryKey: keys.ask(id),
    queryFn: ({ signal }) =>
      answer(api.GET("/v1/asks/{ask_id}", { params: { path: { ask_id: id } }, signal })),
    refetchInterval: ({ state }) => (state.data?.state === "open" ? LISTS_EVERY_MS : false),
  });
}

/** The names of ops that have searches or kernels: what a list of these can be filtered by. */
export function useOpNames(having: "searches" | "archived" | "kernels") {
  return useQuery({
    queryKey: keys.opNames(having),
    queryFn: ({ signal }) => answer(api.GET("/v1/ops/names", { params: { query: { having } }, signal })),
  });
}

export function useOp(id: string | null) {
  return useQuery({
    queryKey: keys.op(id ?? ""),
    queryFn: ({ signal }) =>
      answer(api.GET("/v1/ops/{op_id}", { params: { path: { op_id: id ?? "" } }, signal })),
    enabled: id !== null,
    staleTime: Number.POSITIVE_INFINITY, // an op never changes
  });
}

export function usePools() {
  return useInfiniteQuery({
    queryKey: keys.pools(),
    queryFn: ({ pageParam, signal }) =>
      answer(api.GET("/v1/pools", { params: { query: listQuery({}, pageParam) }, signal })),
    ...following,
    getNextPageParam: (page) => page.next ?? undefined,
  });
}

/** The latest uploads; read again while a worker has one to read. */
export function useImports() {
  return useQuery({
    queryKey: keys.imports(),
    queryFn: ({ signal }) =>
      answer(api.GET("/v1/imports", { params: { query: { limit: LATEST_IMPORTS } }, signal })),
    refetchInterval: ({ state }) => (state.data?.items.some(isOpen) ? LISTS_EVERY_MS / 5 : LISTS_EVERY_MS),
  });
}

export function useWorkers() {
  return useQuery({
    queryKey: keys.workers(),
    queryFn: ({ signal }) => answer(api.GET("/v1/workers", { signal })),
    refetchInterval: LISTS_EVERY_MS,
  });
}

export function useHealth() {
  return useQuery({
    queryKey: keys.health(),
    queryFn: ({ signal }) => answer(api.GET("/healthz", { signal })),
    staleTime: 60_000,
  });
}

/** The state of the whole house. */
export function useSystem() {
  return useQuery({
    queryKey: keys.system(),
    queryFn: ({ signal }) => answer(api.GET("/v1/system", { signal })),
    refetchInterval: LISTS_EVERY_MS,
  });
}

/** What a submission can say here. */
export function useOptions() {
  return useQuery({
    queryKey: keys.options(),
    queryFn: ({ signal }) => answer(api.GET("/v1/options", { signal })),
  });
}

/** The op specs that ship with Warpsmith. */
export function useExamples() {
  return useQuery({
    queryKey: keys.examples(),
    queryFn: ({ signal }) => answer(api.GET("/v1/examples", { signal })),
    staleTime: Number.POSITIVE_INFINITY,
  });
}

type Change = "pause" | "resume" | "cancel";

/** Pause, resume or cancel a search. */
export function useChangeSearch(id: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (change: Change) =>
      answer(api.POST(`/v1/searches/{search_id}/${change}`, { params: { path: { search_id: id } } })),
    onSuccess: (document) => {
      client.setQueryData(keys.search(id), document);
      void client.invalidateQueries({ queryKey: ["searches"] });
    },
  });
}

/** Pin, ban, or take either back. */
export function useMarkNode(searchId: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ nodeId, mark, on }: { nodeId: string; mark: "pin" | "ban"; on: boolean }) => {
      const where = { params: { path: { node_id: nodeId } } };
      return answer(
        on
          ? api.POST(`/v1/nodes/{node_id}/${mark}`, where)
          : api.DELETE(`/v1/nodes/{node_id}/${mark}`, where),
      );
    },
    onSuccess: (node) => {
      void client.invalidateQueries({ queryKey: keys.tree(searchId) });
      void client.invalidateQueries({ queryKey: keys.node(node.id) });
      void client.invalidateQueries({ queryKey: keys.search(searchId) });
    },
  });
}

/** Give an ask its answer. */
export function useAnswerAsk(id: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (body: { reply: string; answered_by: string }) =>
      answer(api.POST("/v1/asks/{ask_id}/answer", { params: { path: { ask_id: id } }, body })),
    onSuccess: (document) => {
      client.setQueryData(keys.ask(id), document);
      void client.invalidateQueries({ queryKey: ["asks"] });
    },
  });
}
