import { Loading } from "../../../app/Page";
import { EmptyState } from "../../../design";
import { useView } from "../view";
import { useSearchTree } from "./rows";
import { TreeView } from "./TreeView";

/** The tree of a search as a drawing; the address bar names the node that is open. */
export function TreeTab({ searchId }: { searchId: string }) {
  const query = useSearchTree(searchId);
  const { nodeId, setNode } = useView();
  return (
    <Loading query={query}>
      {(tree) =>
        tree.rootId === null ? (
          <EmptyState title="No nodes yet">The first appears when a worker takes the search up.</EmptyState>
        ) : (
          <TreeView key={searchId} searchId={searchId} tree={tree} selected={nodeId} onOpen={setNode} />
        )
      }
    </Loading>
  );
}
