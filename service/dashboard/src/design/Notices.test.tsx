import { render, screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { ProblemError } from "../api/problem";
import { ErrorNotice } from "./Notices";

it("says once under which name the service's log says more", () => {
  const detail = "The server failed; its log says more under er_1";
  const body = { type: "about:blank", title: "The server failed", status: 500, detail, error_id: "er_1" };
  render(<ErrorNotice error={ProblemError.fromBody(500, body)} what="Nothing was read" />);
  expect(screen.getByRole("alert").textContent?.match(/er_1/g)).toHaveLength(1);
});

it("shows a list that was expected as a list, and a sentence without quotes", () => {
  const errors = [
    { field: "reference", found: [64, 1024], expected: [64] },
    { field: "dtype", found: "float33", expected: "one of float64, float32" },
  ];
  const body = { type: "about:blank", title: "Refused", status: 422, detail: "", errors };
  render(<ErrorNotice error={ProblemError.fromBody(422, body)} />);
  const says = screen.getAllByRole("listitem").map((item) => item.textContent);
  expect(says).toEqual([
    "reference: found [64,1024], expected [64]",
    'dtype: found "float33", expected one of float64, float32',
  ]);
});
