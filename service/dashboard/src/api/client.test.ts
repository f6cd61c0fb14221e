import { describe, expect, it, vi } from "vitest";
import { answer, answerOrNull, api, onLoginRequired, renewCsrfToken, setCsrfToken } from "./client";
import { ProblemError } from "./problem";

function serve(status: number, body: unknown, type = "application/problem+json") {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  const fetch = vi.fn(
    async (_: Request) => new Response(text, { status, headers: { "content-type": type } }),
  );
  vi.stubGlobal("fetch", fetch);
  return fetch;
}

const list = () => answer(api.GET("/v1/searches"));
const failure = (call: Promise<unknown>) =>
  call.then(
    () => null,
    (error: unknown) => error,
  );

describe("the client", () => {
  it("throws a problem document as a ProblemError with its fields", async () => {
    serve(422, {
      type: "urn:warpsmith:problem:invalid-input",
      title: "A field is wrong",
      status: 422,
      detail: "query.limit: found 0, expected 1",
      errors: [{ field: "query.limit", found: 0, expected: "a whole number from 1" }],
    });
    const error = (await failure(list())) as ProblemError;
    expect(error).toBeInstanceOf(ProblemError);
    expect(error).toMatchObject({
      status: 422,
      type: "urn:warpsmith:problem:invalid-input",
      title: "A field is wrong",
    });
    expect(error.of("query.limit")).toBe("found 0, expected a whole number from 1");
    expect(error.of("other")).toBeUndefined();
  });

  it("makes a problem of an answer that is none", async () => {
    serve(502, "<html>Bad gateway</html>", "text/html");
    expect(await failure(list())).toMatchObject({ name: "ProblemError", status: 502, errors: [] });
  });

  it("has null for what is not there where that is an answer, and for nothing else", async () => {
    const missing = { title: "There is no such node", status: 404, detail: "none" };
    serve(404, missing);
    expect(await answerOrNull(api.GET("/v1/searches"))).toBeNull();
    expect(await failure(list())).toMatchObject({ status: 404 });
    serve(500, { ...missing, status: 500 });
    expect(await failure(answerOrNull(api.GET("/v1/searches")))).toMatchObject({ status: 500 });
  });

  it("says that the service does not answer", async () => {
    vi.stubGlobal("fetch", () => Promise.reject(new TypeError("Failed to fetch")));
    expect(await failure(list())).toMatchObject({
      status: 0,
      title: "The service does not answer",
      detail: expect.stringContaining("cannot tell whether workers go on"),
    });
  });

  it("tells those who wait for it that a login is required", async () => {
    serve(401, { title: "An API key is required", status: 401, detail: "none" });
    const tell = vi.fn();
    const forget = onLoginRequired(tell);
    await failure(list());
    forget();
    expect(tell).toHaveBeenCalledOnce();
  });

  it("says that a session ended until another begins, not where it was signed out", async () => {
    serve(401, { title: "An API key is required", status: 401, detail: "none" });
    const told: boolean[] = [];
    const forget = onLoginRequired((ended) => told.push(ended));
    await failure(list());
    setCsrfToken("first");
    await failure(list());
    setCsrfToken(null);
    await failure(list());
    setCsrfToken("second");
    setCsrfToken(null);
    await failure(list());
    setCsrfToken("third");
    renewCsrfToken(null);
    forget();
    setCsrfToken("fourth");
    setCsrfToken(null);
    expect(told).toEqual([false, true, true, false, true]);
  });

  it("sends the session's token with changes, and with nothing else", async () => {
    const fetch = serve(200, { items: [], next: null }, "application/json");
    setCsrfToken("secret");
    await list();
    await api.POST("/v1/searches/{search_id}/pause", { params: { path: { search_id: "sr_1" } } });
    setCsrfToken(null);
    expect(fetch.mock.calls.map(([request]) => request.headers.get("X-CSRF-Token"))).toEqual([
      null,
      "secret",
    ]);
  });
});
