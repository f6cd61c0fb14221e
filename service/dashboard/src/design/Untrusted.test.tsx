import { render } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { Code } from "./Code";
import { pieces, visible } from "./escapes";
import { Untrusted } from "./Untrusted";

const RLO = "\u202e";

describe("Untrusted", () => {
  it.each([
    ["a right-to-left override", RLO, "\\u{202e}"],
    ["an isolate", "\u2066", "\\u{2066}"],
    ["a zero-width space", "\u200b", "\\u{200b}"],
    ["a zero-width joiner", "\u200d", "\\u{200d}"],
    ["a byte-order mark", "\ufeff", "\\u{feff}"],
    ["a null", "\0", "\\u{0000}"],
    ["an escape", "\u001b", "\\u{001b}"],
    ["a tag letter", "\u{e0041}", "\\u{e0041}"],
    ["a variation selector", "\ufe0f", "\\u{fe0f}"],
    ["a Hangul filler", "\u3164", "\\u{3164}"],
    ["a blank Braille cell", "\u2800", "\\u{2800}"],
    ["a lone surrogate", "\ud800", "\\u{d800}"],
  ])("shows %s as an escape", (_, character, shown) => {
    const { container } = render(<Untrusted text={`a${character}b`} />);
    expect(container.textContent).toBe(`a${shown}b`);
    expect(container.textContent).not.toContain(character);
  });

  it("leaves other text alone, line ends and tabs too", () => {
    const text = "µ ≥ 漢字 العربية 🚀\n\tx";
    expect(pieces(text)).toEqual([{ text, escaped: false }]);
    expect(visible(text)).toBe(text);
  });

  it("renders markup as text", () => {
    const text = '<img src=x onerror="alert(1)"><script>alert(1)</script>';
    const { container } = render(<Untrusted text={text} />);
    expect(container.textContent).toBe(text);
    expect(container.querySelector("img, script")).toBeNull();
  });

  it("escapes within highlighted code, which keeps its text", () => {
    const { container } = render(<Code code={`x = "a${RLO}b"  # <b>\n`} language="python" label="Code" />);
    const code = container.querySelector("pre");
    expect(code?.textContent).toBe('x = "a\\u{202e}b"  # <b>\n');
    expect(code?.querySelector("b")).toBeNull();
  });
});
