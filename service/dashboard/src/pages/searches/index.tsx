import { useCallback, useState } from "react";
import { useTags } from "../../api/labels";
import { type SearchSummary, useSearches } from "../../api/queries";
import { Chips, Choice, Filters, OpAndTarget, Pager, TextFilter } from "../../app/ListTools";
import { type Listing, sortOf, useListing } from "../../app/listing";
import { Loading, Page } from "../../app/Page";
import { inOrder } from "../../app/SpeedUp";
import { Button, ButtonLink, EmptyState, Table } from "../../design";
import { useMedia } from "../../design/media";
import { ChosenBar } from "./ChosenBar";
import { columns } from "./columns";
import { FILTERS, isFiltered, SORTS, STATES, searchQuery, statesOf } from "./query";
import { SavedFilters } from "./SavedFilters";
import styles from "./Searches.module.css";

const BASELINES = ["eager", "compile", "max_autotune"];

export default function SearchesPage() {
  const listing = useListing();
  const query = useSearches(searchQuery(listing.params));
  const wide = useMedia("(min-width: 1400px)");
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const toggle = useCallback(
    (id: string) =>
      setChosen((old) => new Set(old.has(id) ? [...old].filter((one) => one !== id) : [...old, id])),
    [],
  );
  return (
    <Page
      title="Searches"
      actions={
        <ButtonLink kind="primary" to="/searches/new">
          New search
        </ButtonLink>
      }
    >
      <SearchFilters listing={listing} />
      <SavedFilters listing={listing} />
      <Loading query={query}>
        {({ items: rows, next }) => (
          <>
            <ChosenBar
              rows={rows.filter(({ id }) => chosen.has(id))}
              archived={listing.params.get("archived") === "yes"}
              onClear={() => setChosen(new Set())}
            />
            <div className={styles.list}>
              <Table
                caption="Searches"
                cards
                columns={columns(wide, baselinesOf(rows), { chosen, toggle })}
                rows={rows}
                rowKey={(row) => row.id}
                sort={sortOf(listing.params, SORTS)}
                onSort={listing.setSort}
                empty={<Nothing listing={listing} />}
              />
            </div>
            <Pager listing={listing} next={next ?? null} shown={rows.length} />
          </>
        )}
      </Loading>
    </Page>
  );
}

function baselinesOf(rows: readonly SearchSummary[]): string[] {
  return inOrder([
    ...new Set([...BASELINES, ...rows.flatMap((row) => Object.keys(row.best?.speedup ?? {}))]),
  ]);
}

function SearchFilters({ listing }: { listing: Listing }) {
  const { params, set } = listing;
  const onText = useCallback((text: string) => set({ text }, { replace: true }), [set]);
  return (
    <Filters>
      <Chips label="States" options={STATES} chosen={statesOf(params)} onChange={(state) => set({ state })} />
      <OpAndTarget listing={listing} of={params.get("archived") === "yes" ? "archived" : "searches"} />
      <TagFilter listing={listing} />
      <Choice
        label="Archive"
        all="Not archived"
        options={["yes"]}
        names={ARCHIVED}
        value={params.get("archived") === "yes" ? "yes" : null}
        onChange={(archived) => set({ archived })}
      />
      <TextFilter
        label="Name, op, tag, model, notes or id"
        value={params.get("text") ?? ""}
        onChange={onText}
      />
    </Filters>
  );
}

const ARCHIVED = new Map([["yes", "Archived"]]);

/** One tag; the address may hold several. */
function TagFilter({ listing: { params, set } }: { listing: Listing }) {
  const tags = useTags();
  const chosen = params.getAll("tag");
  const options = tags.data?.map(({ tag }) => tag) ?? [];
  if (options.length === 0 && chosen.length === 0) return null;
  return (
    <Choice
      label="Tag"
      all="All tags"
      options={options}
      value={chosen[0] ?? null}
      onChange={(tag) => set({ tag })}
    />
  );
}

function Nothing({ listing }: { listing: Listing }) {
  if (isFiltered(listing.params) || listing.after !== null) {
    return (
      <EmptyState
        title="No search matches"
        action={
          <Button onClick={() => listing.set(Object.fromEntries(FILTERS.map((name) => [name, null])))}>
            Show all searches
          </Button>
        }
      />
    );
  }
  return (
    <EmptyState
      title="No searches yet"
      action={
        <ButtonLink kind="primary" to="/searches/new">
          New search
        </ButtonLink>
      }
    >
      <p>
        A search takes an op and the shapes that matter, and looks for a kernel that is faster than PyTorch.
        Start one here from an example, or with the command line: <code>warpsmith search OP.yaml</code>
      </p>
    </EmptyState>
  );
}
