/** The tree of a search as rows of its nodes: read once whole, then folded with what changed since. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { answer, api, type Schemas } from "../../../api/client";
import { keys } from "../../../api/queries";
import { ENDED } from "../ended";

export type RowDocument = Schemas["TreeRow"];

/** A row with every field in the same order: rows that leave out what is null are of a hundred shapes, which makes reading
 * thousands of them ten times slower. */
export type TreeRow = { [Field in keyof RowDocument]-?: Exclude<RowDocument[Field], undefined> };

export function rowOf(document: RowDocument): TreeRow {
  return {
    id: document.id,
    parent_id: document.parent_id ?? null,
    seq: document.seq,
    round: document.round,
    state: document.state,
    verdict: document.verdict ?? null,
    gate: document.gate ?? null,
    technique: document.technique ?? null,
    title: document.title ?? null,
    origin: document.origin,
    mark: document.mark ?? null,
    verification: document.verification,
    duplicate_of: document.duplicate_of ?? null,
    score: document.score ?? null,
    ci95: document.ci95 ?? null,
    limit_fraction: document.limit_fraction ?? null,
    updated_at: document.updated_at,
  };
}

/** The state of a node that a search planned and ended before it was tried. */
export const NOT_TRIED = "not_tried";

/** A row as it stands in a search that has ended, or goes on again. */
function settled(row: TreeRow, ended: boolean): TreeRow {
  const [before, after] = ended ? ["planned", NOT_TRIED] : [NOT_TRIED, "planned"];
  return row.state === before && row.seq > 0 ? { ...row, state: after } : row;
}

export type TreePage = Pick<
  Schemas["TreeRows"],
  "as_of" | "best_node_id" | "best_path" | "rows" | "next_after_seq" | "state"
>;

export interface SearchTree {
  state: Schemas["TreeRows"]["state"];
  /** What to give as `updated_since` for what changes from here on. */
  asOf: number;
  rows: ReadonlyMap<string, TreeRow>;
  /** Ids of each node's children by rising `seq`; the same array as long as no child is added. */
  children: ReadonlyMap<string, readonly string[]>;
  rootId: string | null;
  bestId: string | null;
  bestPath: readonly string[];
}

export const EMPTY_TREE: SearchTree = {
  state: "queued",
  asOf: 0,
  rows: new Map(),
  children: new Map(),
  rootId: null,
  bestId: null,
  bestPath: [],
};

/**
 * The tree with a page of rows in it. `children` stays the same object where no node is new, so that who lays the tree
 * out can tell; the tree itself stays the same object where nothing that is shown changed.
 */
export function fold(tree: SearchTree, page: TreePage): SearchTree {
  const ended = ENDED.has(page.state);
  const turned = ended !== ENDED.has(tree.state) ? [...tree.rows.values()] : [];
  const given = new Map([...turned, ...page.rows.map(rowOf)].map((row) => [row.id, settled(row, ended)]));
  const changed = [...given.values()].filter((row) => !same(tree.rows.get(row.id), row));
  const samePath =
    page.best_path.length === tree.bestPath.length &&
    page.best_path.every((id, at) => id === tree.bestPath[at]);
  const head = {
    state: page.state,
    asOf: page.as_of,
    bestId: page.best_node_id,
    bestPath: samePath ? tree.bestPath : page.best_path,
  };
  if (changed.length === 0) {
    const quiet = samePath && head.bestId === tree.bestId && head.state === tree.state;
    // `asOf` is no part of what is shown, but the next request needs it.
    return quiet && head.asOf === tree.asOf ? tree : { ...tree, ...head };
  }
  const rows = new Map(tree.rows);
  const added = changed.filter((row) => !rows.has(row.id)).sort((a, b) => a.seq - b.seq);
  for (const row of changed) rows.set(row.id, row);
  return {
    ...head,
    rows,
    children: added.length > 0 ? withChildren(tree.children, added, rows) : tree.children,
    rootId: tree.rootId ?? added.find((row) => row.parent_id === null)?.id ?? null,
  };
}

function same(old: TreeRow | undefined, row: TreeRow): boolean {
  // Every change of a node stamps it anew; the score is compared beside it for a stamp as coarse as its clock.
  return (
    old !== undefined &&
    old.updated_at === row.updated_at &&
    old.state === row.state &&
    old.verdict === row.verdict &&
    old.verification === row.verification &&
    old.mark === row.mark &&
    old.score === row.score
  );
}

function withChildren(
  old: SearchTree["children"],
  added: readonly TreeRow[],
  rows: ReadonlyMap<string, TreeRow>,
): Map<string, readonly string[]> {
  const children = new Map(old);
  const fresh = new Map<string, string[]>();
  for (const row of added) {
    const parent = row.parent_id;
    if (parent === null) continue;
    const list = fresh.get(parent) ?? [...(old.get(parent) ?? [])];
    list.push(row.id);
    fresh.set(parent, list);
  }
  const seqOf = (id: string) => rows.get(id)?.seq ?? 0;
  for (const [parent, list] of fresh)
    children.set(
      parent,
      list.sort((a, b) => seqOf(a) - seqOf(b)),
    );
  return children;
}

/** What changed since the tree at hand, all pages of it; the whole tree where there is none. */
export async function readTree(
  searchId: string,
  known: SearchTree | undefined,
  signal?: AbortSignal,
): Promise<SearchTree> {
  let tree = known ?? EMPTY_TREE;
  let asOf: number | undefined;
  let after: number | null = -1;
  while (after !== null) {
    const page: Schemas["TreeRows"] = await answer(
      api.GET("/v1/searches/{search_id}/tree/rows", {
        params: {
          path: { search_id: searchId },
          query: { after_seq: after, limit: PAGE, ...(known && { updated_since: known.asOf }) },
        },
        ...(signal && { signal }),
      }),
    );
    // What changes while later pages are read is asked for again from the first page's moment on.
    asOf ??= page.as_of;
    tree = fold(tree, { ...page, as_of: asOf });
    after = page.next_after_seq;
  }
  return tree;
}

const PAGE = 5000;

/** The tree as it is now. After the first time only changed rows are read. */
export function useSearchTree(searchId: string) {
  const client = useQueryClient();
  return useQuery({
    queryKey: keys.tree(searchId),
    queryFn: ({ signal }) => readTree(searchId, client.getQueryData<SearchTree>(keys.tree(searchId)), signal),
    structuralSharing: false,
  });
}
