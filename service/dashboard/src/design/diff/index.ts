/** Two codes compared: `difference` finds the rows, a `DiffTable` shows them. */
export { DiffTable } from "./DiffTable";
export { difference, linesOf } from "./diff";
