import { act, renderHook } from "@testing-library/react";
import { MemoryRouter, useLocation } from "react-router";
import { expect, it } from "vitest";
import { useView } from "./view";

function at(address: string) {
  const { result } = renderHook(() => ({ view: useView(), search: useLocation().search }), {
    wrapper: ({ children }) => <MemoryRouter initialEntries={[address]}>{children}</MemoryRouter>,
  });
  return result;
}

it("opens a verdict and its view in one step, and takes the verdict back", () => {
  const page = at("/?tab=list&node=nd_1&view=history");
  act(() => page.current.view.setVerdict("vd_1", "workloads"));
  expect(page.current.search).toBe("?tab=list&node=nd_1&view=workloads&verdict=vd_1");
  act(() => page.current.view.setVerdict(null, "timing"));
  expect(page.current.search).toBe("?tab=list&node=nd_1&view=timing");
});

it("leaves view and tab as they are where another node is opened, and what was said of the first behind", () => {
  const page = at("/?tab=list&node=nd_1&view=diff&verdict=vd_1&against=champion");
  act(() => page.current.view.setNode("nd_2"));
  expect(page.current.search).toBe("?tab=list&node=nd_2&view=diff");
  act(() => page.current.view.setNode(null));
  expect(page.current.search).toBe("?tab=list");
});

it("names the other side of a difference", () => {
  const page = at("/?node=nd_1&view=diff");
  act(() => page.current.view.setAgainst("champion"));
  expect(page.current.view.against).toBe("champion");
  expect(page.current.search).toBe("?node=nd_1&view=diff&against=champion");
});
