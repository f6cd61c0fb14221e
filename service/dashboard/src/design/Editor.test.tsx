import { EditorView } from "@codemirror/view";
import { render, waitFor } from "@testing-library/react";
import { expect, it } from "vitest";
import { Editor } from "./Editor";

// jsdom has no layout, which CodeMirror asks for its cursor, and no such command, by which it finds a selection.
document.execCommand = () => false;
Range.prototype.getClientRects = () => [] as unknown as DOMRectList;

async function open(value: string, readOnly = false) {
  const told: string[] = [];
  const drawn = (text: string) => (
    <Editor
      label="Answer"
      language="text"
      value={text}
      readOnly={readOnly}
      onChange={(typed) => told.push(typed)}
    />
  );
  const { container, rerender } = render(drawn(value));
  const view = await waitFor(() => {
    const editor = container.firstElementChild?.shadowRoot?.querySelector<HTMLElement>(".cm-editor");
    const found = editor && EditorView.findFromDOM(editor);
    if (!found) throw new Error("the editor is not there yet");
    return found;
  });
  return {
    view,
    told,
    draw: (text: string) => rerender(drawn(text)),
    type: (text: string) => view.dispatch({ changes: { from: view.state.doc.length, insert: text } }),
    text: () => view.state.doc.toString(),
  };
}

it("keeps what was typed while what was typed before is still being drawn", async () => {
  const editor = await open("");
  editor.type("a");
  editor.type("b");
  editor.draw("a");
  expect(editor.text()).toBe("ab");
  editor.type("c");
  editor.draw("ab");
  editor.draw("abc");
  expect(editor.text()).toBe("abc");
  expect(editor.told).toEqual(["a", "ab", "abc"]);
});

it("shows a value that came from elsewhere, though it was typed once", async () => {
  const editor = await open("one");
  editor.type("!");
  editor.draw("one!");
  editor.draw("another");
  expect(editor.text()).toBe("another");
  editor.draw("one!");
  expect(editor.text()).toBe("one!");
  expect(editor.told).toEqual(["one!"]);
});

it("says in view while it has the focus, and as its description, how the keyboard leaves it", async () => {
  const { view } = await open("one");
  const root = view.root as ShadowRoot;
  const hint = root.getElementById(view.contentDOM.getAttribute("aria-describedby") ?? "");
  expect(hint).toHaveTextContent("Tab indents; Escape, then Tab leaves the editor");
  expect(hint?.hidden).toBe(true);
  view.focus();
  await waitFor(() => expect(hint?.hidden).toBe(false));
  view.contentDOM.blur();
  await waitFor(() => expect(hint?.hidden).toBe(true));
});

it("leaves Tab to the browser after Escape, as it says", async () => {
  const editor = await open("one");
  editor.view.focus();
  expect(press(editor.view, "Tab", 9)).toBe(false);
  expect(editor.text()).not.toBe("one");
  const indented = editor.text();
  press(editor.view, "Escape", 27);
  expect(press(editor.view, "Tab", 9)).toBe(true);
  expect(editor.text()).toBe(indented);
});

it("says nothing of Tab where nothing can be typed and Tab leaves", async () => {
  const { view } = await open("one", true);
  view.focus();
  expect(view.contentDOM).not.toHaveAttribute("aria-describedby");
  expect(press(view, "Tab", 9)).toBe(true);
});

/** Presses a key; whether the browser still does with it what it does. */
function press(view: EditorView, key: string, keyCode: number): boolean {
  return view.contentDOM.dispatchEvent(
    new KeyboardEvent("keydown", { key, keyCode, bubbles: true, cancelable: true }),
  );
}
