import { type ReactNode, useState } from "react";
import { Cards } from "./Cards";
import { classes } from "./classes";
import { useMedia } from "./media";
import styles from "./Table.module.css";

export interface Column<Row> {
  key: string;
  header: ReactNode;
  cell: (row: Row) => ReactNode;
  /** What rows are sorted by; a column without it cannot be sorted. Missing values come last either way. */
  sortBy?: (row: Row) => number | string | null | undefined;
  /** Numbers stand at the right. */
  numeric?: boolean;
  /** Of a card: stands in its head, beside the first column. */
  lead?: boolean;
  /** Of a card: takes its whole width. */
  wide?: boolean;
}

export interface Sort {
  key: string;
  descending: boolean;
}

interface TableProps<Row> {
  caption: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  rowKey: (row: Row) => string;
  initialSort?: Sort;
  /** Given both, the sort is the caller's: one kept in the address bar, or done by the service. */
  sort?: Sort | null;
  onSort?: (sort: Sort) => void;
  /** What stands in place of rows. */
  empty?: ReactNode;
  /** On narrow screens each row is a card, in place of a table that scrolls. */
  cards?: boolean;
}

const NARROW = "(max-width: 760px)";

/** Rows in columns; headers sort, the head stays in view, and narrow screens scroll within or show cards. */
export function Table<Row>({ cards = false, ...props }: TableProps<Row>) {
  return cards ? <Adaptive {...props} /> : <Plain {...props} />;
}

function Adaptive<Row>({ initialSort, ...props }: TableProps<Row>) {
  const [own, setOwn] = useState<Sort | null>(initialSort ?? null);
  const narrow = useMedia(NARROW);
  const sort = props.onSort ? (props.sort ?? null) : own;
  const onSort = props.onSort ?? setOwn;
  if (!narrow || props.rows.length === 0) return <Plain {...props} sort={sort} onSort={onSort} />;
  return <Cards {...props} rows={sorted(props.rows, props.columns, sort)} sort={sort} onSort={onSort} />;
}

function Plain<Row>({ caption, columns, rows, rowKey, initialSort, sort, onSort, empty }: TableProps<Row>) {
  const [own, setOwn] = useState<Sort | null>(initialSort ?? null);
  const current = onSort ? (sort ?? null) : own;
  const change = onSort ?? setOwn;
  const shown = sorted(rows, columns, current);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard
    <section className={styles.scroll} aria-label={caption} tabIndex={0}>
      <table className={styles.table}>
        <caption className="visually-hidden">{caption}</caption>
        <thead>
          <tr>
            {columns.map((column) => (
              <Header key={column.key} column={column} sort={current} onSort={change} />
            ))}
          </tr>
        </thead>
        <tbody>
          {shown.map((row) => (
            <tr key={rowKey(row)}>
              {columns.map((column) => (
                <td key={column.key} className={classes(column.numeric && styles.numeric)}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
          {shown.length === 0 && empty && (
            <tr>
              <td colSpan={columns.length} className={styles.empty}>
                {empty}
              </td>
            </tr>
          )}
        </tbody>
      </table>
    </section>
  );
}

interface HeaderProps<Row> {
  column: Column<Row>;
  sort: Sort | null;
  onSort: (sort: Sort) => void;
}

function Header<Row>({ column, sort, onSort }: HeaderProps<Row>) {
  const active = sort?.key === column.key;
  const className = classes(column.numeric && styles.numeric);
  if (!column.sortBy) {
    return (
      <th scope="col" className={className}>
        {column.header}
      </th>
    );
  }
  // Numbers are asked for largest first, words from A.
  const descending = active ? !sort.descending : Boolean(column.numeric);
  return (
    <th
      scope="col"
      className={className}
      aria-sort={active ? (sort.descending ? "descending" : "ascending") : "none"}
    >
      <button type="button" className={styles.sort} onClick={() => onSort({ key: column.key, descending })}>
        {column.header}
        <span aria-hidden="true" className={styles.arrow}>
          {active ? (sort.descending ? "▾" : "▴") : ""}
        </span>
      </button>
    </th>
  );
}

/** The rows in order; equal ones keep the order they came in. */
function sorted<Row>(
  rows: readonly Row[],
  columns: readonly Column<Row>[],
  sort: Sort | null,
): readonly Row[] {
  const sortBy = columns.find((column) => column.key === sort?.key)?.sortBy;
  if (!sort || !sortBy) return rows;
  const way = sort.descending ? -1 : 1;
  return [...rows].sort((left, right) => {
    const a = sortBy(left) ?? null;
    const b = sortBy(right) ?? null;
    if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
    if (typeof a === "string" || typeof b === "string") return way * String(a).localeCompare(String(b), "en");
    return way * (a - b);
  });
}
