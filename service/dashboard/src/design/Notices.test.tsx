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
