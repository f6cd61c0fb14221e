import { useCallback, useMemo, useState } from "react";
import { useSearchParams } from "react-router";
import { Loading } from "../../../app/Page";
import { classes, EmptyState } from "../../../design";
import { useView } from "../view";
import { FilterBar } from "./FilterBar";
import { filtersOf, shownOf } from "./filters";
import type { SearchTree } from "./rows";
import { useSearchTree } from "./rows";
import { TreeView } from "./TreeView";
import styles from "./TreeView.module.css";

/** The tree of a search as a drawing; the address bar names the node that is open. */
export function TreeTab({ searchId }: { searchId: string }) {
  const query = useSearchTree(searchId);
  return (
    <Loading query={query}>
      {(tree) =>
        tree.rootId === null ? (
          <EmptyState title="No nodes yet">The first appears when a worker takes the search up.</EmptyState>
        ) : (
          <Filtered key={searchId} searchId={searchId} tree={tree} />
        )
      }
    </Loading>
  );
}

/** The tree with what the address leaves of it. */
function Filtered({ searchId, tree }: { searchId: string; tree: SearchTree }) {
  const { nodeId, setNode, set } = useView();
  const [params] = useSearchParams();
  const filters = useMemo(() => filtersOf(params), [params]);
  const shown = useMemo(() => shownOf(tree, filters), [tree, filters]);
  const [filled, setFilled] = useState(false);
  /** A node opens on the page, beside the tree. */
  const open = useCallback(
    (id: string) => {
      setFilled(false);
      setNode(id);
    },
    [setNode],
  );
  return (
    <div className={classes(styles.tab, filled && styles.filled)}>
      <FilterBar tree={tree} shown={shown} filters={filters} set={set} />
      <TreeView
        searchId={searchId}
        tree={shown.tree}
        selected={nodeId}
        onOpen={open}
        filled={filled}
        onFill={setFilled}
      />
    </div>
  );
}
