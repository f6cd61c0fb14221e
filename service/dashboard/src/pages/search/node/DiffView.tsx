import { useMemo, useState } from "react";
import { useSource } from "../../../api/node";
import type { NodeDocument } from "../../../api/queries";
import { Loading } from "../../../app/Page";
import { Checkbox, EmptyState, Field, format, Select } from "../../../design";
import { DiffTable, difference } from "../../../design/diff";
import { useView } from "../view";
import styles from "./Node.module.css";
import { type Opposite, opposites } from "./opposites";

/** What changed against the parent, the champion, or what the judge saw before a repair. */
export function DiffView({ node }: { node: NodeDocument }) {
  const choices = useMemo(() => opposites(node), [node]);
  const { against, setAgainst } = useView();
  const [ignoreSpace, setIgnoreSpace] = useState(false);
  const chosen = choices.find(({ key }) => key === against) ?? choices[0];
  if (!node.source) {
    return <EmptyState title="No code yet">There is nothing to compare before code is written.</EmptyState>;
  }
  if (!chosen) {
    return <EmptyState title="Nothing to compare with">The node has neither parent nor champion.</EmptyState>;
  }
  return (
    <div className={styles.stack}>
      <div className={styles.toolbar}>
        <Field label="Compare with">
          <Select value={chosen.key} onChange={(event) => setAgainst(event.currentTarget.value)}>
            {choices.map(({ key, label }) => (
              <option key={key} value={key}>
                {label}
              </option>
            ))}
          </Select>
        </Field>
        <Checkbox
          label="Leave white space out of account"
          checked={ignoreSpace}
          onChange={(event) => setIgnoreSpace(event.currentTarget.checked)}
        />
      </div>
      {chosen.source === undefined ? (
        <Fetched chosen={chosen} now={node.source} ignoreSpace={ignoreSpace} />
      ) : (
        <Compared chosen={chosen} before={chosen.source} now={node.source} ignoreSpace={ignoreSpace} />
      )}
    </div>
  );
}

interface ComparedProps {
  chosen: Opposite;
  now: string;
  ignoreSpace: boolean;
}

function Fetched({ chosen, ...rest }: ComparedProps) {
  const query = useSource(chosen.nodeId);
  return (
    <Loading query={query}>
      {({ source }) =>
        source ? (
          <Compared {...rest} chosen={chosen} before={source} />
        ) : (
          <EmptyState title="No code on the other side">
            {chosen.seq === 0
              ? "The parent is the op's reference, which is PyTorch: this candidate began a branch of its own."
              : "No code was written for that node."}
          </EmptyState>
        )
      }
    </Loading>
  );
}

function Compared({ chosen, before, now, ignoreSpace }: ComparedProps & { before: string }) {
  const found = useMemo(() => difference(before, now, ignoreSpace), [before, now, ignoreSpace]);
  if (found.added + found.removed === 0) {
    return (
      <EmptyState title={before === now ? "Identical" : "Identical but for white space"}>
        Not a line differs.
      </EmptyState>
    );
  }
  return (
    <>
      <p className={styles.muted}>
        {format.count(found.removed)} {found.removed === 1 ? "line" : "lines"} removed,{" "}
        {format.count(found.added)} added.
      </p>
      <DiffTable
        key={`${chosen.key}-${ignoreSpace}`}
        rows={found.rows}
        before={before}
        now={now}
        beforeName={chosen.short}
        nowName="This node"
      />
    </>
  );
}
