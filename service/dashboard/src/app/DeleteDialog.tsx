import { useDeleteSearches } from "../api/labels";
import { Button, Dialog, ErrorNotice, format, useToast } from "../design";
import styles from "./DeleteDialog.module.css";

/** Asks before searches are deleted for good, and says what is kept. */
export function DeleteDialog({
  ids,
  onClose,
  onDone,
}: {
  ids: readonly string[];
  onClose: () => void;
  onDone: () => void;
}) {
  const gone = useDeleteSearches();
  const toast = useToast();
  const [what, verb] =
    ids.length === 1 ? ["The search", "is"] : [`${format.count(ids.length)} searches`, "are"];
  return (
    <Dialog
      open
      title={ids.length === 1 ? "Delete the search?" : `Delete ${format.count(ids.length)} searches?`}
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Keep</Button>
          <Button
            kind="danger"
            busy={gone.isPending}
            onClick={() =>
              gone.mutate(ids, {
                onSuccess: (kernels) => {
                  const kept = `${format.count(kernels.length)} ${kernels.length === 1 ? "kernel stays" : "kernels stay"}`;
                  toast(`${what} ${verb} deleted${kernels.length ? `; ${kept}` : ""}`);
                  onDone();
                },
              })
            }
          >
            Delete for good
          </Button>
        </>
      }
    >
      <ul className={styles.kept}>
        <li>
          Deleted: the tree with its nodes and code, tries, profiles, verdicts, prompts and replies, asks,
          events, name, tags and notes.
        </li>
        <li>
          Kept: kernels that it stored, with their code, evidence and lineage; they are exported as before.
          Packages that were exported already are yours.
        </li>
        <li>Kept too: the op and the pools, counterexamples, what was spent, and the audit log.</li>
        <li>
          It cannot be undone. To only clear the list, archive it. To replay it later, export its pool first.
        </li>
      </ul>
      {gone.isError && (
        <ErrorNotice
          error={gone.error}
          what="Not everything was deleted"
          safe="What is still listed is whole."
        />
      )}
    </Dialog>
  );
}
