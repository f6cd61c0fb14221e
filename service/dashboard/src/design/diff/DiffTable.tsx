import { useMemo, useState } from "react";
import { Tokens } from "../Code";
import { classes } from "../classes";
import * as format from "../format";
import { highlightLines, type Token } from "../highlight";
import styles from "./Diff.module.css";
import { type Fold, folded, type Line, linesOf, pieces, type Row, type Side, unified } from "./diff";
import { useWide } from "./useWide";

interface DiffTableProps {
  rows: readonly Row[];
  before: string;
  now: string;
  beforeName: string;
  nowName: string;
}

const SIDE_BY_SIDE_PX = 860;
/** Rows laid out at once: more are asked for. */
const ROWS = 500;

/** The rows side by side where there is room, else one below the other. */
export function DiffTable({ rows, before, now, beforeName, nowName }: DiffTableProps) {
  const [element, wide] = useWide(SIDE_BY_SIDE_PX);
  const [open, setOpen] = useState<ReadonlySet<number>>(new Set());
  const left = useMemo(() => tokenLines(before), [before]);
  const right = useMemo(() => tokenLines(now), [now]);
  const [most, setMost] = useState(ROWS);
  const all = useMemo(() => folded(rows, open), [rows, open]);
  const shown = all.slice(0, most);
  const unfold = (key: number) => setOpen((old) => new Set([...old, key]));
  return (
    <div ref={element} className={styles.frame}>
      <table className={classes(styles.table, wide && styles.wide)}>
        <caption className="visually-hidden">
          What changed from {beforeName} to {nowName}, {wide ? "side by side" : "line by line"}
        </caption>
        {wide ? (
          <>
            <colgroup>
              <col className={styles.numbers} />
              <col />
              <col className={styles.numbers} />
              <col />
            </colgroup>
            <thead>
              <tr>
                <th scope="col" colSpan={2}>
                  {beforeName}
                </th>
                <th scope="col" colSpan={2}>
                  {nowName}
                </th>
              </tr>
            </thead>
            <tbody>
              {shown.map((row) =>
                row.kind === "fold" ? (
                  <FoldRow key={`fold-${row.key}`} fold={row} columns={4} onOpen={unfold} />
                ) : (
                  <tr key={`${row.left?.number ?? ""}-${row.right?.number ?? ""}`}>
                    <Half side={row.left} lines={left} sign={row.kind === "same" ? null : "removed"} />
                    <Half side={row.right} lines={right} sign={row.kind === "same" ? null : "added"} />
                  </tr>
                ),
              )}
            </tbody>
          </>
        ) : (
          <>
            <colgroup>
              <col className={styles.numbers} />
              <col className={styles.numbers} />
              <col />
            </colgroup>
            <thead>
              <tr>
                <th scope="col" colSpan={3}>
                  <span className={styles.removedName}>− {beforeName}</span>{" "}
                  <span className={styles.addedName}>+ {nowName}</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {unified(shown).map((row) =>
                row.kind === "fold" ? (
                  <FoldRow key={`fold-${row.key}`} fold={row} columns={3} onOpen={unfold} />
                ) : (
                  <Whole
                    key={`${row.left ?? ""}-${row.right ?? ""}`}
                    line={row}
                    lines={row.side === "left" ? left : right}
                  />
                ),
              )}
            </tbody>
          </>
        )}
      </table>
      {all.length > most && (
        <div className={styles.fold}>
          <button type="button" onClick={() => setMost(most + 4 * ROWS)}>
            Show more: {format.count(all.length - most)} lines follow
          </button>
        </div>
      )}
    </div>
  );
}

function tokenLines(code: string): Token[][] {
  return highlightLines(linesOf(code).join("\n"), "python");
}

const SIGNS = { removed: "−", added: "+" } as const;
type Sign = keyof typeof SIGNS | null;

function Half({ side, lines, sign }: { side: Side | null; lines: readonly Token[][]; sign: Sign }) {
  if (!side) {
    return (
      <>
        <td className={styles.number} />
        <td className={styles.nothing} />
      </>
    );
  }
  return (
    <>
      <td className={styles.number}>{side.number}</td>
      <Text sign={sign} tokens={lines[side.number - 1] ?? []} marks={side.marks} />
    </>
  );
}

function Whole({ line, lines }: { line: Line; lines: readonly Token[][] }) {
  const number = line.side === "left" ? line.left : line.right;
  return (
    <tr>
      <td className={styles.number}>{line.left}</td>
      <td className={styles.number}>{line.right}</td>
      <Text
        sign={line.kind === "same" ? null : line.kind}
        tokens={lines[(number ?? 1) - 1] ?? []}
        marks={line.marks}
      />
    </tr>
  );
}

function Text({
  sign,
  tokens,
  marks,
}: {
  sign: Sign;
  tokens: readonly Token[];
  marks: readonly (readonly [number, number])[];
}) {
  const Mark = sign === "removed" ? "del" : "ins";
  return (
    <td className={classes(styles.text, sign && styles[sign])}>
      {sign && (
        <span className={styles.sign} role="img" aria-label={sign}>
          {SIGNS[sign]}
        </span>
      )}
      {marks.length === 0 ? (
        <Tokens tokens={tokens} />
      ) : (
        pieces(tokens, marks).map((piece, at) =>
          piece.marked ? (
            // biome-ignore lint/suspicious/noArrayIndexKey: pieces of one line have no other identity
            <Mark key={at} className={styles.mark}>
              <Tokens tokens={piece.tokens} />
            </Mark>
          ) : (
            // biome-ignore lint/suspicious/noArrayIndexKey: pieces of one line have no other identity
            <Tokens key={at} tokens={piece.tokens} />
          ),
        )
      )}
    </td>
  );
}

function FoldRow({ fold, columns, onOpen }: { fold: Fold; columns: number; onOpen: (key: number) => void }) {
  return (
    <tr>
      <td colSpan={columns} className={styles.fold}>
        <button type="button" onClick={() => onOpen(fold.key)}>
          Show {format.count(fold.rows.length)} equal lines
        </button>
      </td>
    </tr>
  );
}
