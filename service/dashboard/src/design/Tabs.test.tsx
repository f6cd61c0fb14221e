import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { expect, it } from "vitest";
import { Tabs } from "./Tabs";

const TABS = [
  { key: "a", label: "First" },
  { key: "b", label: "Second" },
  { key: "c", label: "Third" },
] as const;

function Example() {
  const [selected, setSelected] = useState<"a" | "b" | "c">("a");
  return (
    <Tabs label="Views" tabs={TABS} selected={selected} onSelect={setSelected}>
      Panel {selected}
    </Tabs>
  );
}

it("is one stop for the Tab key, and arrow keys move, select and go round", async () => {
  const user = userEvent.setup();
  render(<Example />);
  await user.tab();
  expect(screen.getByRole("tab", { name: "First" })).toHaveFocus();
  for (const [key, name, panel] of [
    ["{ArrowRight}", "Second", "Panel b"],
    ["{End}", "Third", "Panel c"],
    ["{ArrowRight}", "First", "Panel a"],
    ["{ArrowLeft}", "Third", "Panel c"],
    ["{Home}", "First", "Panel a"],
  ] as const) {
    await user.keyboard(key);
    expect(screen.getByRole("tab", { name })).toHaveFocus();
    expect(screen.getByRole("tab", { selected: true })).toHaveTextContent(name);
    expect(screen.getByRole("tabpanel", { name })).toHaveTextContent(panel);
  }
  await user.tab();
  expect(screen.getByRole("tabpanel")).toHaveFocus();
});
