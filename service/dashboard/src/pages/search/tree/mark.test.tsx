import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, renderHook, waitFor } from "@testing-library/react";
import { expect, it, vi } from "vitest";
import { useMarkNode } from "../../../api/queries";
import { useSearchTree } from "./rows";
import { page, row } from "./testing";

it("shows a mark in the tree at once, though no event tells of it", async () => {
  let banned = false;
  vi.stubGlobal("fetch", async (request: Request) => {
    if (request.method === "POST") {
      banned = request.url.endsWith("/v1/nodes/n1/ban");
      return Response.json({ id: "n1" });
    }
    const now = banned ? { mark: "banned" as const, updated_at: 2 } : {};
    return Response.json(page([row(0, null), row(1, 0, now)]));
  });
  const client = new QueryClient();
  const { result } = renderHook(() => ({ tree: useSearchTree("sr_1").data, mark: useMarkNode("sr_1") }), {
    wrapper: ({ children }) => <QueryClientProvider client={client}>{children}</QueryClientProvider>,
  });
  await waitFor(() => expect(result.current.tree?.rows.get("n1")?.mark).toBeNull());
  act(() => result.current.mark.mutate({ nodeId: "n1", mark: "ban", on: true }));
  await waitFor(() => expect(result.current.tree?.rows.get("n1")?.mark).toBe("banned"));
});
