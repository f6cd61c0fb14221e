import { Loading } from "../../app/Page";
import { Button, download, EmptyState } from "../../design";
import { csvOf } from "./list/csv";
import { NodeList } from "./list/NodeList";
import styles from "./Search.module.css";
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
          <>
            <div className={styles.listTools}>
              <Button onClick={() => download(`${searchId}.csv`, csvOf(tree), "text/csv")}>
                Download as CSV
              </Button>
            </div>
            <NodeList key={searchId} tree={tree} selected={nodeId} onOpen={setNode} />
          </>
        )
      }
    </Loading>
  );
}
