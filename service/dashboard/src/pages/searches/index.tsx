import { useCallback } from "react";
import { type SearchSummary, useSearches } from "../../api/queries";
import { Chips, Filters, OpAndTarget, Pager, TextFilter, useRoomForBaselines } from "../../app/ListTools";
import { type Listing, sortOf, useListing } from "../../app/listing";
import { Loading, Page } from "../../app/Page";
import { inOrder } from "../../app/SpeedUp";
import { Button, ButtonLink, EmptyState, Table } from "../../design";
import { columns } from "./columns";
import { isFiltered, SORTS, STATES, searchQuery, statesOf } from "./query";

const BASELINES = ["eager", "compile", "max_autotune"];

export default function SearchesPage() {
  const listing = useListing();
  const query = useSearches(searchQuery(listing.params));
  const wide = useRoomForBaselines();
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
      <Loading query={query}>
        {({ items: rows, next }) => (
          <>
            <Table
              caption="Searches"
              cards
              columns={columns(wide, baselinesOf(rows))}
              rows={rows}
              rowKey={(row) => row.id}
              sort={sortOf(listing.params, SORTS)}
              onSort={listing.setSort}
              empty={<Nothing listing={listing} />}
            />
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
      <Chips
        label="States"
        options={STATES}
        chosen={statesOf(params)}
        onChange={(state) => set({ state }, { replace: true })}
      />
      <OpAndTarget listing={listing} />
      <TextFilter label="Op, id or reason" value={params.get("text") ?? ""} onChange={onText} />
    </Filters>
  );
}

function Nothing({ listing }: { listing: Listing }) {
  if (isFiltered(listing.params) || listing.after !== null) {
    return (
      <EmptyState
        title="No search matches"
        action={
          <Button onClick={() => listing.set({ state: null, op: null, target: null, text: null })}>
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
