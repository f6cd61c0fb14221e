import { describe, expect, it } from "vitest";
import { difference, folded, pieces, unified, words } from "./diff";

const code = (...lines: string[]) => `${lines.join("\n")}\n`;

describe("difference", () => {
  it("pairs replaced lines, marks the words in them and counts what changed", () => {
    const { rows, removed, added } = difference(
      code("a", "int n = 64;", "z"),
      code("a", "int n = 128;", "new", "z"),
      false,
    );
    expect(rows.map((row) => [row.kind, row.left?.number ?? null, row.right?.number ?? null])).toEqual([
      ["same", 1, 1],
      ["changed", 2, 2],
      ["added", null, 3],
      ["same", 3, 4],
    ]);
    const [from, to] = rows[1]?.left?.marks[0] ?? [0, 0];
    expect(rows[1]?.left?.text.slice(from, to)).toBe("64");
    expect([removed, added]).toEqual([1, 2]);
  });

  it("finds nothing in what is equal but for line ends", () => {
    expect(difference("a\r\nb", "a\nb\n", false)).toMatchObject({ removed: 0, added: 0 });
  });

  it("sees indentation, or leaves it out of account and still shows each side's own", () => {
    const [before, after] = [code("if x:", "  y"), code("if x:", "    y")];
    expect(difference(before, after, false).added).toBe(1);
    const { rows, added } = difference(before, after, true);
    expect(added).toBe(0);
    expect([rows[1]?.left?.text, rows[1]?.right?.text]).toEqual(["  y", "    y"]);
  });

  it("marks no words between lines that have nothing in common, or are too long to look at", () => {
    expect(words("abc def", "qqq(www)", false)).toEqual([[], []]);
    expect(words("x".repeat(700), `${"x".repeat(700)}y`, false)).toEqual([[], []]);
  });

  it("stays quick with files that have nothing in common", () => {
    const file = (word: string) => code(...Array.from({ length: 6000 }, (_, at) => `${word} ${at}`));
    const { removed, added } = difference(file("old"), file("new"), false);
    expect([removed, added]).toEqual([6000, 6000]);
  });
});

describe("folding", () => {
  const lines = Array.from({ length: 20 }, (_, at) => `line ${at}`);
  const changed = lines.map((line, at) => (at === 10 ? `${line}!` : line));
  const { rows } = difference(code(...lines), code(...changed), false);

  it("keeps three lines around a change and says how many are folded", () => {
    const shown = folded(rows, new Set());
    expect(shown.map((row) => (row.kind === "fold" ? row.rows.length : row.kind))).toEqual([
      7,
      "same",
      "same",
      "same",
      "changed",
      "same",
      "same",
      "same",
      6,
    ]);
  });

  it("opens one fold and leaves the other", () => {
    const shown = folded(rows, new Set([0]));
    expect(shown.filter((row) => row.kind === "fold")).toHaveLength(1);
    expect(shown).toHaveLength(15);
  });
});

describe("unified", () => {
  it("puts what was removed before what was added, within one stretch of changes", () => {
    const { rows } = difference(code("a", "b1", "c1", "d"), code("a", "b2", "c2", "d"), false);
    expect(unified(rows).map((row) => (row.kind === "fold" ? "fold" : `${row.kind} ${row.text}`))).toEqual([
      "same a",
      "removed b1",
      "removed c1",
      "added b2",
      "added c2",
      "same d",
    ]);
  });
});

describe("pieces", () => {
  it("cuts tokens at marks and loses nothing", () => {
    const cut = pieces(
      [
        { text: "int", kind: "type" },
        { text: " n = 64", kind: null },
      ],
      [
        [1, 4],
        [8, 10],
      ],
    );
    expect(cut.map(({ marked, tokens }) => [marked, tokens.map(({ text }) => text).join("|")])).toEqual([
      [false, "i"],
      [true, "nt| "],
      [false, "n = "],
      [true, "64"],
    ]);
  });
});
