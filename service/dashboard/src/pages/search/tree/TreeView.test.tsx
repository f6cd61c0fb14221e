import { fireEvent, render, screen } from "@testing-library/react";
import { beforeEach, expect, it, vi } from "vitest";
import type { SearchTree } from "./rows";
import { TreeView } from "./TreeView";
import { row, small, treeFrom } from "./testing";

/** Takes every call and keeps what was written. */
function ink(written: string[]): CanvasRenderingContext2D {
  return new Proxy({} as CanvasRenderingContext2D, {
    get: (_, name) => {
      if (name === "measureText") return (text: string) => ({ width: text.length * 6 });
      if (name === "fillText") return (text: string) => written.push(text);
      return () => undefined;
    },
    set: () => true,
  });
}

let written: string[] = [];

beforeEach(() => {
  sessionStorage.clear();
  written = [];
  vi.spyOn(HTMLCanvasElement.prototype, "getContext").mockReturnValue(ink(written) as never);
  vi.spyOn(Element.prototype, "clientWidth", "get").mockReturnValue(900);
  vi.spyOn(Element.prototype, "clientHeight", "get").mockReturnValue(600);
  vi.stubGlobal("matchMedia", () => ({ matches: true, addEventListener() {}, removeEventListener() {} }));
  vi.stubGlobal(
    "ResizeObserver",
    class {
      constructor(private readonly tell: () => void) {}
      observe() {
        this.tell();
      }
      disconnect() {}
    },
  );
});

function show(tree: SearchTree, selected: string | null = null) {
  const [onOpen, onFill] = [vi.fn(), vi.fn()];
  render(
    <TreeView
      searchId="sr_1"
      tree={tree}
      selected={selected}
      onOpen={onOpen}
      filled={false}
      onFill={onFill}
    />,
  );
  const drawing = screen.getByRole("application");
  const press = (key: string, shiftKey = false) => fireEvent.keyDown(drawing, { key, shiftKey });
  return { drawing, press, onOpen, onFill };
}

it("says what the tree holds", () => {
  const tree = treeFrom([row(0, null), row(1, 0, { score: 1.59 }), row(2, 0, { verdict: "rejected" })], {
    best_node_id: "n1",
    best_path: ["n0", "n1"],
  });
  const { drawing } = show(tree);
  expect(drawing).toHaveAccessibleName(/^Tree of 2 ideas, 1 accepted, 1 rejected, best #1 1.59x\./);
});

it("walks by arrow keys, says where it is, and opens by Enter", () => {
  const { press, onOpen } = show(small());
  press("ArrowRight");
  expect(screen.getByText(/^#2 Idea 2, accepted/)).toBeInTheDocument();
  press("ArrowUp");
  press("ArrowRight");
  expect(screen.getByText(/^#[45] Idea [45], accepted, screened, depth 2/)).toBeInTheDocument();
  press("ArrowLeft");
  press("Enter");
  expect(onOpen).toHaveBeenCalledExactlyOnceWith("n1");
});

it("collapses by Space, and opens again by the arrow to the child", () => {
  const { press } = show(small(), "n1");
  press(" ");
  expect(screen.getByText(/2 children, collapsed$/)).toBeInTheDocument();
  press("ArrowRight");
  press("ArrowRight");
  expect(screen.getByText(/^#[45] Idea [45]/)).toBeInTheDocument();
});

it("finds nodes, and goes from one match to the next", () => {
  const { press } = show(small());
  press("/");
  const finder = screen.getByRole("searchbox");
  fireEvent.change(finder, { target: { value: "idea" } });
  expect(screen.getByText("1 of 7")).toBeInTheDocument();
  fireEvent.keyDown(finder, { key: "Enter" });
  fireEvent.keyDown(finder, { key: "Enter" });
  expect(screen.getByText(/of 7$/)).toHaveTextContent("3 of 7");
  fireEvent.change(finder, { target: { value: "nothing" } });
  expect(screen.getByText("none")).toBeInTheDocument();
});

it("draws titles with invisible characters escaped, also that of the selected node after a reload", async () => {
  show(treeFrom([row(0, null), row(1, 0, { title: "a\u202eb <img>" })]), "n1");
  await vi.waitFor(() => expect(written).toContain("#1 a\\u{202e}b <img>"));
  expect(written.some((text) => text.includes("\u202e"))).toBe(false);
});

it("fills the window by W and by its button, and goes back by Escape", () => {
  const { press, onFill } = show(small());
  press("w");
  screen.getByRole("button", { name: /^Fill the window/ }).click();
  expect(onFill.mock.calls).toEqual([[true], [true]]);
  press("Escape");
  expect(onFill).toHaveBeenLastCalledWith(false);
});
