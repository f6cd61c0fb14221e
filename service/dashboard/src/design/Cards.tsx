import { IconButton } from "./Button";
import styles from "./Cards.module.css";
import { classes } from "./classes";
import { Select } from "./Field";
import type { Column, Sort } from "./Table";

interface CardsProps<Row> {
  caption: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  rowKey: (row: Row) => string;
  sort: Sort | null;
  onSort: (sort: Sort) => void;
}

/** A table's rows for narrow screens: the leading columns as a card's head, the others as names and values. */
export function Cards<Row>({ caption, columns, rows, rowKey, sort, onSort }: CardsProps<Row>) {
  const heads = columns.filter((column, at) => at === 0 || column.lead);
  const rest = columns.filter((column) => !heads.includes(column));
  return (
    <div className={styles.cards}>
      <Sorting columns={columns} sort={sort} onSort={onSort} />
      <ul className={styles.list} aria-label={caption}>
        {rows.map((row) => (
          <li key={rowKey(row)} className={styles.card}>
            <div className={styles.head}>
              {heads.map((column) => (
                <div key={column.key}>{column.cell(row)}</div>
              ))}
            </div>
            <dl className={styles.values}>
              {rest.map((column) => (
                <div key={column.key} className={classes(styles.value, column.wide && styles.wide)}>
                  <dt>{column.header}</dt>
                  <dd>{column.cell(row)}</dd>
                </div>
              ))}
            </dl>
          </li>
        ))}
      </ul>
    </div>
  );
}

function Sorting<Row>({
  columns,
  sort,
  onSort,
}: {
  columns: readonly Column<Row>[];
  sort: Sort | null;
  onSort: (sort: Sort) => void;
}) {
  const able = columns.filter((column) => column.sortBy);
  if (able.length === 0) return null;
  return (
    <div className={styles.sorting}>
      <span className={styles.label}>
        <span aria-hidden="true">Sort by</span>
        <Select
          aria-label="Sort by"
          value={sort?.key ?? ""}
          onChange={({ currentTarget: { value } }) => {
            const column = able.find(({ key }) => key === value);
            if (column) onSort({ key: value, descending: Boolean(column.numeric) });
          }}
        >
          {!sort && <option value="">as they came</option>}
          {able.map((column) => (
            <option key={column.key} value={column.key}>
              {column.header}
            </option>
          ))}
        </Select>
      </span>
      {sort && (
        <IconButton
          kind="plain"
          label={sort.descending ? "Largest or newest first" : "Smallest or oldest first"}
          icon={sort.descending ? "▾" : "▴"}
          onClick={() => onSort({ ...sort, descending: !sort.descending })}
        />
      )}
    </div>
  );
}
