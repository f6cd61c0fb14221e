import { describe, expect, it } from "vitest";
import { authorize, loginPath } from "./requests";

const SESSION = { keys_required: true, name: "me", csrf_token: "t-1" };

describe("a request of /docs", () => {
  it("has the session's token where it changes something", () => {
    expect(authorize({ method: "POST", headers: {} }, SESSION).headers).toEqual({ "X-CSRF-Token": "t-1" });
    expect(authorize({ method: "delete", headers: {} }, SESSION).headers).toEqual({ "X-CSRF-Token": "t-1" });
  });

  it("has none where it reads, where a key was typed in, and where keys are not in force", () => {
    expect(authorize({ method: "GET", headers: {} }, SESSION).headers).toEqual({});
    expect(authorize({ headers: {} }, SESSION).headers).toEqual({});
    const typed = { Authorization: "Bearer wsk_1" };
    expect(authorize({ method: "POST", headers: { ...typed } }, SESSION).headers).toEqual(typed);
    const open = { keys_required: false, name: null, csrf_token: null };
    expect(authorize({ method: "POST", headers: {} }, open).headers).toEqual({});
  });

  it("leads back here after the login", () => {
    const place = { pathname: "/redoc", search: "?x=1", hash: "#/ops" };
    expect(loginPath(place)).toBe("/login?next=%2Fdocs%3Fx%3D1%23%2Fops");
  });
});
