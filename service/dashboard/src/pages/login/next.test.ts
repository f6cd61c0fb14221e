import { expect, it } from "vitest";
import { safeNext } from "./next";

it.each([
  ["/kernels?op=a", "/kernels?op=a"],
  ["/docs#/ops/list_ops", "/docs#/ops/list_ops"],
  ["//evil.example/x", "/"],
  ["/\\evil.example", "/"],
  ["https://evil.example", "/"],
  ["javascript:alert(1)", "/"],
  [null, "/"],
])("after signing in, %s leads to %s", (next, path) => expect(safeNext(next)).toBe(path));
