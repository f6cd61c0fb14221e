import { render } from "@testing-library/react";
import { createMemoryRouter, RouterProvider } from "react-router";
import { expect, it, vi } from "vitest";
import { Leave } from "./Leave";
import { routes } from "./routes";

it("goes to the file itself, and keeps the operation that was linked to", () => {
  const go = vi.fn();
  const router = createMemoryRouter([{ path: "docs", element: <Leave to="/docs.html" go={go} /> }], {
    initialEntries: ["/docs?x=1#/ops/list_ops"],
  });
  render(<RouterProvider router={router} />);
  expect(go.mock.calls).toEqual([["/docs.html?x=1#/ops/list_ops"]]);
});

it("is no page of the dashboard that would come here again", () => {
  const pages = routes[0]?.children?.[0]?.children?.map(({ path }) => path);
  expect(pages).toContain("docs");
  expect(pages).not.toContain("docs.html");
});
