import { useState } from "react";
import { useLabels } from "../../api/labels";
import { asProblem } from "../../api/problem";
import type { SearchSummary } from "../../api/queries";
import { DeleteDialog } from "../../app/DeleteDialog";
import { Button, ButtonLink, format, Untrusted, useToast } from "../../design";
import { ENDED } from "../search/ended";
import { comparable, compareAddress } from "./chosen";
import styles from "./Searches.module.css";

/** What can be done with the rows that are chosen. */
export function ChosenBar({
  rows,
  archived,
  onClear,
}: {
  rows: readonly SearchSummary[];
  archived: boolean;
  onClear: () => void;
}) {
  const [deleting, setDeleting] = useState(false);
  const change = useLabels();
  const toast = useToast();
  if (rows.length === 0) return null;
  const ids = rows.map(({ id }) => id);
  const ended = rows.every(({ state }) => ENDED.has(state));
  const why = comparable(rows);

  function move() {
    change.mutate(
      { ids, labels: { archived: !archived } },
      {
        onSuccess: () => {
          toast(
            archived ? "They are listed again" : "Archived: lists leave them out, and nothing else changes",
          );
          onClear();
        },
        onError: (error) => toast(<Untrusted text={asProblem(error).detail} />, { bad: true }),
      },
    );
  }

  return (
    <section aria-label="Chosen searches" className={styles.chosen}>
      <span>{format.count(rows.length)} chosen</span>
      {why === null ? (
        <ButtonLink kind="primary" to={compareAddress(rows)}>
          Compare
        </ButtonLink>
      ) : (
        <>
          <Button disabled>Compare</Button>
          <span className={styles.detail}>{why}</span>
        </>
      )}
      <Button busy={change.isPending} disabled={!ended} onClick={move}>
        {archived ? "List again" : "Archive"}
      </Button>
      <Button kind="danger" disabled={!ended} onClick={() => setDeleting(true)}>
        Delete
      </Button>
      {!ended && (
        <span className={styles.detail}>Only searches that have ended are archived or deleted.</span>
      )}
      <Button kind="quiet" onClick={onClear}>
        Choose none
      </Button>
      {deleting && (
        <DeleteDialog
          ids={ids}
          onClose={() => setDeleting(false)}
          onDone={() => {
            setDeleting(false);
            onClear();
          }}
        />
      )}
    </section>
  );
}
