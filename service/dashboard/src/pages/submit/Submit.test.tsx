import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { render, screen } from "@testing-library/react";
import { MemoryRouter } from "react-router";
import { beforeEach, expect, it, vi } from "vitest";
import { ToastProvider } from "../../design";
import SubmitPage from ".";
import { EMPTY, keepDraft } from "./draft";

const OPTIONS = {
  targets: [{ target: "cpu:x86_64", device: "cpu", languages: ["cpp"], live_workers: 1 }],
  policies: [{ name: "idea_beam", summary: "", parameters: [] }],
  limits: ["candidates"],
  providers: [{ name: "openai", ready: false, detail: "" }],
  default_model: "m",
  most_seeds: 3,
  techniques: [],
};
const TOO_LARGE = {
  type: "urn:warpsmith:problem:too-large",
  title: "Too large",
  status: 413,
  errors: [{ field: "body", found: "2300434 bytes", expected: "at most 2097152" }],
};

beforeEach(() => {
  sessionStorage.clear();
  vi.stubGlobal("matchMedia", () => ({ matches: false, addEventListener() {}, removeEventListener() {} }));
  vi.stubGlobal("fetch", async ({ url }: Request) => {
    if (url.endsWith("/v1/options")) return Response.json(OPTIONS);
    if (url.endsWith("/v1/ops/validate")) return Response.json(TOO_LARGE, { status: 413 });
    return Response.json(url.endsWith("/tags") ? [] : { items: [], next: null });
  });
});

it("says of a spec that could not be checked why, and not that it is being checked", async () => {
  keepDraft({ ...EMPTY, text: "name: a" });
  const client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  render(
    <QueryClientProvider client={client}>
      <MemoryRouter>
        <ToastProvider>
          <SubmitPage />
        </ToastProvider>
      </MemoryRouter>
    </QueryClientProvider>,
  );
  expect(await screen.findByText("The spec was not checked")).toBeVisible();
  expect(screen.getByText("The spec was not checked.")).toBeVisible();
  expect(screen.queryByText("Checking…")).toBeNull();
  expect(screen.queryByText("The spec is being checked.")).toBeNull();
});
