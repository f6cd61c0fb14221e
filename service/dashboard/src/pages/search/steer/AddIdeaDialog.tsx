import { useState } from "react";
import { Dialog, EmptyState, ErrorNotice, Field, format, Select, Skeleton, visible } from "../../../design";
import { IdeaDialog } from "../node/IdeaDialog";
import { type TreeRow, useSearchTree } from "../tree/rows";

/** An idea for the search, on a parent that is chosen first. */
export function AddIdeaDialog({ searchId, onClose }: { searchId: string; onClose: () => void }) {
  const query = useSearchTree(searchId);
  const [chosen, setChosen] = useState<string | null>(null);
  const parents = query.data ? parentsOf([...query.data.rows.values()]) : [];
  const parent = parents.find(({ id }) => id === (chosen ?? query.data?.bestId)) ?? parents[0];
  if (!parent) {
    return (
      <Dialog open title="Add an idea" onClose={onClose}>
        {query.isError ? (
          <ErrorNotice error={query.error} onRetry={() => void query.refetch()} />
        ) : query.data ? (
          <EmptyState title="There is nothing to build on yet">
            The baselines are measured first. Try again when the tree has its root.
          </EmptyState>
        ) : (
          <Skeleton />
        )}
      </Dialog>
    );
  }
  return (
    <IdeaDialog
      node={{ id: parent.id, seq: parent.seq, search_id: searchId, technique: parent.technique ?? null }}
      onClose={onClose}
      parentChooser={
        <Field label="Built on" hint="An accepted candidate, or the reference for a start from nothing">
          <Select value={parent.id} onChange={({ currentTarget: { value } }) => setChosen(value)}>
            {parents.map((row) => (
              <option key={row.id} value={row.id}>
                {nameOf(row, row.id === query.data?.bestId)}
              </option>
            ))}
          </Select>
        </Field>
      }
    />
  );
}

/** What an idea can be built on: accepted candidates, the fastest first, then the reference. */
function parentsOf(rows: readonly TreeRow[]): TreeRow[] {
  return rows
    .filter((row) => row.seq === 0 || (row.verdict === "accepted" && row.mark !== "banned"))
    .sort((a, b) => (b.score ?? 0) - (a.score ?? 0) || a.seq - b.seq);
}

function nameOf(row: TreeRow, best: boolean): string {
  if (row.seq === 0) return "The reference";
  const score = format.ratio(row.score);
  return `#${row.seq} ${visible(row.title ?? "")} (${score}${best ? ", the best" : ""})`;
}
