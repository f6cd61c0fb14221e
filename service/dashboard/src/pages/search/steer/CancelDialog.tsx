import { type SearchDocument, useChangeSearch } from "../../../api/queries";
import { Button, Dialog, ErrorNotice, format, useToast } from "../../../design";
import styles from "./Steer.module.css";

/** Asks before a search ends for good, and says what is kept. */
export function CancelDialog({ search, onClose }: { search: SearchDocument; onClose: () => void }) {
  const change = useChangeSearch(search.id);
  const toast = useToast();
  const judged = search.spend.candidates;
  return (
    <Dialog
      open
      title="Cancel the search?"
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Let it go on</Button>
          <Button
            kind="danger"
            busy={change.isPending}
            onClick={() =>
              change.mutate("cancel", {
                onSuccess: () => {
                  toast("The search is cancelled");
                  onClose();
                },
              })
            }
          >
            Cancel the search
          </Button>
        </>
      }
    >
      <ul className={styles.kept}>
        <li>
          Kept: the tree with its {format.count(search.nodes)} {search.nodes === 1 ? "node" : "nodes"}, every
          verdict
          {judged > 0 && ` of ${format.count(judged)} ${judged === 1 ? "candidate" : "candidates"}`}, the
          recorded replies, and the kernels that it has stored.
        </li>
        <li>Lost: the steps that run now. Their time is spent, and their results are not used.</li>
        <li>
          A cancelled search cannot be resumed. To stop for a while, pause it; to go on from a node later,
          branch a new search from it.
        </li>
      </ul>
      {change.isError && (
        <ErrorNotice error={change.error} what="The search was not cancelled" safe="It goes on as before." />
      )}
    </Dialog>
  );
}
