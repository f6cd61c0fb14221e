import { useState } from "react";
import { useNavigate } from "react-router";
import { useLabels } from "../../../api/labels";
import { asProblem } from "../../../api/problem";
import type { SearchDocument } from "../../../api/queries";
import { DeleteDialog } from "../../../app/DeleteDialog";
import { Button, Untrusted, useToast } from "../../../design";
import { LabelsDialog } from "./LabelsDialog";

/** How a search is kept: its name, tags and notes; once it has ended, its archive and its deletion. */
export function Keeping({ search, ended }: { search: SearchDocument; ended: boolean }) {
  const [open, setOpen] = useState<"labels" | "delete" | null>(null);
  const change = useLabels();
  const toast = useToast();
  const navigate = useNavigate();
  const archived = search.archived_at != null;

  function archive() {
    change.mutate(
      { ids: [search.id], labels: { archived: !archived } },
      {
        onSuccess: () => toast(archived ? "It is listed again" : "Archived: lists leave it out"),
        onError: (error) => toast(<Untrusted text={asProblem(error).detail} />, { bad: true }),
      },
    );
  }

  return (
    <>
      <Button onClick={() => setOpen("labels")}>Name and tags</Button>
      {ended && (
        <>
          <Button busy={change.isPending} onClick={archive}>
            {archived ? "List again" : "Archive"}
          </Button>
          <Button kind="danger" onClick={() => setOpen("delete")}>
            Delete
          </Button>
        </>
      )}
      {open === "labels" && <LabelsDialog search={search} onClose={() => setOpen(null)} />}
      {open === "delete" && (
        <DeleteDialog ids={[search.id]} onClose={() => setOpen(null)} onDone={() => void navigate("/")} />
      )}
    </>
  );
}
