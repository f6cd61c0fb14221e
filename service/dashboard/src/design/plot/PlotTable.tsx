import { type ReactNode, useState } from "react";
import { Table } from "../Table";
import styles from "./Plot.module.css";

export interface PlotTableProps {
  columns: readonly { header: string; numeric?: boolean }[];
  rows: readonly (readonly ReactNode[])[];
}

/** What a plot shows, as a table that is made when it is opened. */
export function PlotTable({ columns, rows }: PlotTableProps) {
  const [open, setOpen] = useState(false);
  return (
    <details className={styles.table} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>As a table</summary>
      {open && (
        <Table
          caption="The plot as a table"
          columns={columns.map(({ header, numeric = false }, at) => ({
            key: header,
            header,
            numeric,
            cell: (row: { cells: readonly ReactNode[] }) => row.cells[at],
          }))}
          rows={rows.map((cells, at) => ({ key: String(at), cells }))}
          rowKey={(row) => row.key}
        />
      )}
    </details>
  );
}
