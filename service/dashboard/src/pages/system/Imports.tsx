import { describeImport, type ImportDocument, isOpen } from "../../api/imports";
import { useImports } from "../../api/queries";
import { Badge, Card, type Column, format, Table, Time, toneOf, Untrusted } from "../../design";
import styles from "./System.module.css";

const COLUMNS: readonly Column<ImportDocument>[] = [
  {
    key: "what",
    header: "Upload",
    cell: ({ id, kind }) => (
      <div className={styles.stacked}>
        <strong>{kind === "pool" ? "A pool" : "Files of an op"}</strong>
        <code className={styles.detail}>{id}</code>
      </div>
    ),
  },
  {
    key: "state",
    header: "State",
    lead: true,
    cell: (row) => <Badge tone={toneOf(row.state)}>{describeImport(row)}</Badge>,
  },
  {
    key: "outcome",
    header: "Outcome",
    cell: ({ result, problem, tries }) => (
      <span className={styles.note}>
        {problem ? (
          <Untrusted text={problem.detail} />
        ) : result ? (
          <>
            <code>{result.pool_id ?? result.op_id}</code>
            {!result.created && ", which was there before"}
          </>
        ) : tries > 1 ? (
          `tried ${format.count(tries)} times`
        ) : (
          format.NONE
        )}
      </span>
    ),
  },
  { key: "team", header: "Team", cell: (row) => <Untrusted text={row.team} /> },
  { key: "size", header: "Size", numeric: true, cell: (row) => format.bytes(row.size) },
  { key: "sent", header: "Sent", numeric: true, cell: (row) => <Time at={row.created_at} /> },
];

/** The latest uploads and how far workers have come with them; nothing where there are none. */
export function Imports() {
  const rows = useImports().data?.items ?? [];
  if (rows.length === 0) {
    return null;
  }
  const open = rows.filter(isOpen).length;
  return (
    <Card
      title="Imports"
      actions={open > 0 && <span className={styles.detail}>{format.count(open)} open</span>}
    >
      <Table cards caption="Imports" columns={COLUMNS} rows={rows} rowKey={(row) => row.id} />
    </Card>
  );
}
