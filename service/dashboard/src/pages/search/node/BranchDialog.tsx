import { useState } from "react";
import { useNavigate } from "react-router";
import { idempotencyKey } from "../../../api/client";
import { useBranch } from "../../../api/node";
import type { NodeDocument, SearchDocument } from "../../../api/queries";
import { Button, Dialog, ErrorNotice, Field, TextInput, useToast } from "../../../design";
import styles from "./Node.module.css";

interface BranchDialogProps {
  node: NodeDocument;
  search: SearchDocument;
  onClose: () => void;
}

/** Starts a search of the same op from a node's candidate. */
export function BranchDialog({ node, search, onClose }: BranchDialogProps) {
  const [key] = useState(idempotencyKey);
  const limit = search.budget.candidates;
  const [candidates, setCandidates] = useState(typeof limit === "number" ? String(limit) : "");
  const branch = useBranch(node.id);
  const navigate = useNavigate();
  const toast = useToast();
  const wanted = candidates.trim() === "" ? null : Number(candidates);
  const wrong = wanted !== null && !(Number.isInteger(wanted) && wanted > 0);
  function start() {
    const budget = wanted === limit ? null : { ...search.budget, candidates: wanted };
    branch.mutate(
      { key, budget },
      {
        onSuccess: (started) => {
          toast("A new search has begun");
          navigate(`/searches/${encodeURIComponent(started.id)}`);
        },
      },
    );
  }
  return (
    <Dialog
      open
      title={`Branch from node #${node.seq}`}
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" onClick={start} busy={branch.isPending} disabled={wrong}>
            Start the search
          </Button>
        </>
      }
    >
      <div className={styles.stack}>
        <p>
          A new search of the same op and target begins with this candidate, which is judged anew. Policy,
          model and the other limits are this search's; nothing of them is spent yet.
        </p>
        <Field
          label="Candidates at most"
          hint="Empty: no limit on candidates"
          error={wrong && "a whole number, at least 1"}
        >
          <TextInput
            inputMode="numeric"
            value={candidates}
            onChange={(event) => setCandidates(event.currentTarget.value)}
          />
        </Field>
        {branch.isError && (
          <ErrorNotice error={branch.error} what="No search was started" safe="This search is as it was." />
        )}
      </div>
    </Dialog>
  );
}
