import { describe, expect, it } from "vitest";
import { highlightLines } from "./highlight";

const text = (lines: ReturnType<typeof highlightLines>) =>
  lines.map((line) => line.map((token) => token.text).join("")).join("\n");

describe("highlightLines", () => {
  it.each([
    ["python", 'def run(x):\n    """two\n    lines"""\n    return 1  # done\n'],
    ["cpp", 'extern "C" void f(float* x) {\n  /* a\n  b */ x[0] = 1;\n}'],
    ["text", "anything\nat all"],
  ] as const)("keeps every character of %s", (language, code) => {
    expect(text(highlightLines(code, language))).toBe(code);
  });

  it("names keywords, strings over lines and comments", () => {
    const kinds = highlightLines('def f():\n    """a\n    b"""\n    return 1 # c', "python").map((line) =>
      line.map((token) => token.kind).filter(Boolean),
    );
    expect(kinds[0]).toContain("keyword");
    expect(kinds[1]).toEqual(["string"]);
    expect(kinds[2]).toEqual(["string"]);
    expect(kinds[3]).toEqual(["keyword", "number", "comment"]);
  });

  it("reads C++ in a string that holds kernels, and leaves other long strings alone", () => {
    const code =
      'k = cuda.compile(r"""\nextern "C" __global__ void f(float* x) { return; }\n""")\n"""void prose"""';
    const lines = highlightLines(code, "python");
    expect(text(lines)).toBe(code);
    const kind = (line: number, word: string) =>
      lines[line]?.find((token) => token.text.includes(word))?.kind;
    expect(kind(1, "return")).toBe("keyword");
    expect(kind(1, "float")).toBe("type");
    expect(kind(2, '"""')).toBe("string");
    expect(kind(3, "void")).toBe("string");
  });
});
