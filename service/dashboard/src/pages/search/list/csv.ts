/** The nodes of a search as a CSV file (RFC 4180) for a spreadsheet or a notebook. Pure. */

import type { SearchTree, TreeRow } from "../tree/rows";

type Cell = string | number | null | undefined;

const COLUMNS: readonly [string, (row: TreeRow, tree: SearchTree) => Cell][] = [
  ["number", ({ seq }) => seq],
  ["parent", ({ parent_id }, tree) => (parent_id === null ? null : tree.rows.get(parent_id)?.seq)],
  ["round", ({ round }) => round],
  ["technique", ({ technique }) => technique],
  ["title", ({ title }) => title],
  ["origin", ({ origin }) => origin],
  ["state", ({ state }) => state],
  ["verdict", ({ verdict }) => verdict],
  ["gate", ({ gate }) => gate],
  ["verification", ({ verification }) => verification],
  ["speedup", ({ score }) => score],
  ["ci95_low", ({ ci95 }) => ci95?.[0]],
  ["ci95_high", ({ ci95 }) => ci95?.[1]],
  ["limit_fraction", ({ limit_fraction }) => limit_fraction],
  ["mark", ({ mark }) => mark],
  ["best", ({ id }, tree) => (id === tree.bestId ? "yes" : null)],
  ["id", ({ id }) => id],
];

/** One line a node, in the order of their numbers. `speedup` is over the fastest baseline. */
export function csvOf(tree: SearchTree): string {
  const rows = [...tree.rows.values()].sort((a, b) => a.seq - b.seq);
  const lines = [
    COLUMNS.map(([name]) => name),
    ...rows.map((row) => COLUMNS.map(([, cell]) => quote(cell(row, tree)))),
  ];
  return `${lines.map((line) => line.join(",")).join("\r\n")}\r\n`;
}

/** Text of others must be no formula of the spreadsheet that opens the file. */
function quote(cell: Cell): string {
  if (cell === null || cell === undefined) return "";
  if (typeof cell === "number") return String(cell);
  const text = /^[=+\-@\t\r]/.test(cell) ? `'${cell}` : cell;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
