import { Loading } from "../../app/Page";
import { EmptyState } from "../../design";
import { NodeList } from "./list/NodeList";
import { useSearchTree } from "./tree/rows";
import { useView } from "./view";

/** The tree of a search as a nested list: the same nodes as the drawing, in text. */
export function ListTab({ searchId }: { searchId: string }) {
  const query = useSearchTree(searchId);
  const { nodeId, setNode } = useView();
  return (
    <Loading query={query}>
      {(tree) =>
        tree.rootId === null ? (
          <EmptyState title="No nodes yet">The first appears when a worker takes the search up.</EmptyState>
        ) : (
          <NodeList key={searchId} tree={tree} selected={nodeId} onOpen={setNode} />
        )
      }
    </Loading>
  );
}
