import { useState } from "react";
import type { NodeDocument } from "../../../api/queries";
import { useMarkNode, useSearch } from "../../../api/queries";
import { ButtonLink, ErrorNotice } from "../../../design";
import { reasons } from "./allowed";
import { BranchDialog } from "./BranchDialog";
import { IdeaDialog } from "./IdeaDialog";
import styles from "./Node.module.css";
import { ReasonButton } from "./ReasonButton";

/** What a person can do with a node. */
export function Actions({ node }: { node: NodeDocument }) {
  const search = useSearch(node.search_id).data;
  const mark = useMarkNode(node.search_id);
  const [dialog, setDialog] = useState<"branch" | "idea" | null>(null);
  const why = reasons(node, search);
  const toggle = (name: "pin" | "ban", on: boolean) => mark.mutate({ nodeId: node.id, mark: name, on });
  const [pinned, banned] = [node.mark === "pinned", node.mark === "banned"];
  return (
    <>
      <div className={styles.row}>
        <ReasonButton reason={why.branch} onClick={() => setDialog("branch")}>
          Branch
        </ReasonButton>
        <ReasonButton reason={why.pin} onClick={() => toggle("pin", !pinned)} busy={mark.isPending}>
          {pinned ? "Unpin" : "Pin"}
        </ReasonButton>
        <ReasonButton reason={why.ban} onClick={() => toggle("ban", !banned)} busy={mark.isPending}>
          {banned ? "Unban" : "Ban"}
        </ReasonButton>
        <ReasonButton reason={why.idea} onClick={() => setDialog("idea")}>
          Add an idea
        </ReasonButton>
        {node.kernel_id ? (
          <ButtonLink kind="primary" to={`/kernels/${encodeURIComponent(node.kernel_id)}`}>
            Export
          </ButtonLink>
        ) : (
          <ReasonButton reason={why.export} onClick={() => {}}>
            Export
          </ReasonButton>
        )}
      </div>
      {mark.isError && (
        <ErrorNotice error={mark.error} what="The mark was not changed" safe="The node is as it was." />
      )}
      {dialog === "branch" && search && (
        <BranchDialog node={node} search={search} onClose={() => setDialog(null)} />
      )}
      {dialog === "idea" && <IdeaDialog node={node} onClose={() => setDialog(null)} />}
    </>
  );
}
