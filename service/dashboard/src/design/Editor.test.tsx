import { EditorView } from "@codemirror/view";
import { render, waitFor } from "@testing-library/react";
import { expect, it } from "vitest";
import { Editor } from "./Editor";

// jsdom has no layout, which CodeMirror asks for its cursor.
Range.prototype.getClientRects = () => [] as unknown as DOMRectList;

async function open(value: string) {
  const told: string[] = [];
  const drawn = (text: string) => (
    <Editor label="Answer" language="text" value={text} onChange={(typed) => told.push(typed)} />
  );
  const { container, rerender } = render(drawn(value));
  const view = await waitFor(() => {
    const editor = container.firstElementChild?.shadowRoot?.querySelector<HTMLElement>(".cm-editor");
    const found = editor && EditorView.findFromDOM(editor);
    if (!found) throw new Error("the editor is not there yet");
    return found;
  });
  return {
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
