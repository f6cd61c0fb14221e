import { fireEvent, render, screen } from "@testing-library/react";
import { beforeEach, expect, it, vi } from "vitest";
import { row, small, treeFrom } from "../tree/testing";
import { NodeList } from "./NodeList";

beforeEach(() => {
  vi.spyOn(HTMLCanvasElement.prototype, "getContext").mockReturnValue(null);
  vi.stubGlobal(
    "ResizeObserver",
    class {
      observe() {}
      disconnect() {}
    },
  );
  vi.stubGlobal("matchMedia", () => ({ matches: false, addEventListener() {}, removeEventListener() {} }));
});

const names = () =>
  screen.getAllByRole("treeitem").map((item) => item.getAttribute("aria-label")?.slice(0, 2));

it("nests by level, with one stop for the Tab key", () => {
  render(<NodeList tree={small()} selected={null} onOpen={() => undefined} />);
  expect(names()).toEqual(["#0", "#1", "#4", "#5", "#2", "#3", "#6"]);
  const items = screen.getAllByRole("treeitem");
  expect(items.map((item) => item.getAttribute("aria-level"))).toEqual(["1", "2", "3", "3", "2", "2", "3"]);
  expect(items.filter((item) => item.tabIndex === 0)).toEqual([items[0]]);
});

it("moves the focus by arrow keys, closes and opens, and opens a node by Enter", () => {
  const onOpen = vi.fn();
  render(<NodeList tree={small()} selected={null} onOpen={onOpen} />);
  const tree = screen.getByRole("tree");
  fireEvent.keyDown(tree, { key: "ArrowDown" });
  expect(document.activeElement).toHaveAccessibleName(/^#1 /);
  fireEvent.keyDown(tree, { key: "ArrowLeft" });
  expect(names()).toEqual(["#0", "#1", "#2", "#3", "#6"]);
  expect(document.activeElement).toHaveAttribute("aria-expanded", "false");
  fireEvent.keyDown(tree, { key: "ArrowRight" });
  fireEvent.keyDown(tree, { key: "ArrowRight" });
  fireEvent.keyDown(tree, { key: "Enter" });
  expect(onOpen).toHaveBeenCalledExactlyOnceWith("n4");
});

it("shows the node of the address bar as selected", () => {
  render(<NodeList tree={small()} selected="n6" onOpen={() => undefined} />);
  expect(screen.getByRole("treeitem", { selected: true })).toHaveAccessibleName(/^#6 /);
});

it("keeps few of many lines in the document", () => {
  const many = treeFrom([row(0, null), ...Array.from({ length: 3000 }, (_, at) => row(at + 1, 0))]);
  render(<NodeList tree={many} selected={null} onOpen={() => undefined} />);
  expect(screen.getAllByRole("treeitem").length).toBeLessThan(80);
  expect(screen.getAllByRole("treeitem")[1]).toHaveAttribute("aria-setsize", "3000");
});

it("shows what is right and slower in another colour than what is right and faster", () => {
  const rows = [
    row(0, null),
    row(1, 0, { state: "judged", verdict: "accepted", score: 0.66 }),
    row(2, 0, { state: "judged", verdict: "accepted", score: 1.5 }),
  ];
  render(<NodeList tree={treeFrom(rows)} selected={null} onOpen={() => undefined} />);
  const [slower, faster] = screen
    .getAllByText(/^accepted, screened/)
    .map(({ parentElement }) => parentElement);
  expect(slower).toHaveTextContent("accepted, screened, slower");
  expect(slower?.className).not.toBe(faster?.className);
});
