import { useState } from "react";
import { asProblem } from "../../../api/problem";
import { type SearchDocument, useChangeSearch } from "../../../api/queries";
import { Button, Untrusted, useToast } from "../../../design";
import { AddIdeaDialog } from "./AddIdeaDialog";
import { BudgetDialog } from "./BudgetDialog";
import { BundleDialog } from "./BundleDialog";
import { CancelDialog } from "./CancelDialog";

type Open = "budget" | "idea" | "bundle" | "cancel" | null;

/** What can be done with a search that has not ended. */
export function Steering({ search }: { search: SearchDocument }) {
  const [open, setOpen] = useState<Open>(null);
  const change = useChangeSearch(search.id);
  const toast = useToast();
  const close = () => setOpen(null);
  const paused = search.state === "paused";

  function toggle() {
    change.mutate(paused ? "resume" : "pause", {
      onSuccess: () =>
        toast(paused ? "The search goes on" : "Paused: steps that run now finish, and no other begins"),
      onError: (error) => toast(<Untrusted text={asProblem(error).detail} />, { bad: true }),
    });
  }

  return (
    <>
      <Button busy={change.isPending} onClick={toggle}>
        {paused ? "Resume" : "Pause"}
      </Button>
      <Button onClick={() => setOpen("idea")}>Add an idea</Button>
      <Button onClick={() => setOpen("budget")}>Budget</Button>
      {canBundle(search) && <Button onClick={() => setOpen("bundle")}>Bundle</Button>}
      <Button kind="danger" onClick={() => setOpen("cancel")}>
        Cancel
      </Button>
      {open === "budget" && <BudgetDialog search={search} onClose={close} />}
      {open === "idea" && <AddIdeaDialog searchId={search.id} onClose={close} />}
      {open === "bundle" && <BundleDialog search={search} onClose={close} />}
      {open === "cancel" && <CancelDialog search={search} onClose={close} />}
    </>
  );
}

/** Judge jobs are taken elsewhere where no judge of this service takes them, or where some are away already. */
function canBundle(search: Pick<SearchDocument, "waiting_for">): boolean {
  return search.waiting_for.some(
    ({ what, detail }) =>
      (what === "worker" && detail.includes("judge")) || (what === "judge" && detail.includes("bundle")),
  );
}
