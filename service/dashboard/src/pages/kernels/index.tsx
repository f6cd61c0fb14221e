import { useCallback, useState } from "react";
import { type KernelSummary, useKernels } from "../../api/queries";
import { Choice, Filters, OpAndTarget, Pager, TextFilter, useRoomForBaselines } from "../../app/ListTools";
import { LANGUAGES } from "../../app/languages";
import { type Listing, sortOf, useListing } from "../../app/listing";
import { Loading, Page } from "../../app/Page";
import { inOrder } from "../../app/SpeedUp";
import { Button, ButtonLink, EmptyState, Table, visible } from "../../design";
import { columns } from "./columns";
import { isFiltered, kernelQuery, NO_FILTERS, notCompared, picked, SORTS } from "./query";
import { DRIFT_NAMES } from "./verification";

export default function KernelsPage() {
  const listing = useListing();
  const query = useKernels(kernelQuery(listing.params));
  const wide = useRoomForBaselines();
  const [chosen, setChosen] = useState<readonly string[]>([]);
  const onPick = useCallback((id: string) => setChosen((old) => picked(old, id)), []);
  const [a, b] = chosen;
  const [left, right] = chosen.map((id) => query.data?.items.find((row) => row.id === id));
  const refused = left && right ? notCompared(left, right) : null;
  return (
    <Page
      title="Kernels"
      actions={
        a && b && !refused ? (
          <ButtonLink
            kind="primary"
            to={`/kernels/compare?a=${encodeURIComponent(a)}&b=${encodeURIComponent(b)}`}
          >
            Compare the two
          </ButtonLink>
        ) : (
          <Button
            disabled
            title={refused ? visible(refused) : "Tick two kernels of one op in the last column"}
          >
            Compare two
          </Button>
        )
      }
    >
      <KernelFilters listing={listing} />
      <Loading query={query}>
        {({ items: rows, next }) => (
          <>
            <Table
              caption="Kernels"
              cards
              columns={columns(wide, baselinesOf(rows), { chosen, onPick })}
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

function baselinesOf(rows: readonly KernelSummary[]): string[] {
  return inOrder([...new Set(rows.flatMap((row) => Object.keys(row.speedup ?? {})))]);
}

function KernelFilters({ listing }: { listing: Listing }) {
  const { params, set } = listing;
  const onText = useCallback((text: string) => set({ text }, { replace: true }), [set]);
  return (
    <Filters>
      <OpAndTarget listing={listing} of="kernels" />
      <Choice
        label="Language"
        all="All languages"
        options={Object.keys(LANGUAGES)}
        value={params.get("language")}
        onChange={(language) => set({ language })}
      />
      <Choice
        label="Re-verification"
        all="Drifted or not"
        options={[...DRIFT_NAMES.keys()]}
        names={DRIFT_NAMES}
        value={params.get("reverification")}
        onChange={(reverification) => set({ reverification })}
      />
      <TextFilter label="Part of the op's name" value={params.get("text") ?? ""} onChange={onText} />
    </Filters>
  );
}

function Nothing({ listing }: { listing: Listing }) {
  if (isFiltered(listing.params) || listing.after !== null) {
    return (
      <EmptyState
        title="No kernel matches"
        action={<Button onClick={() => listing.set(NO_FILTERS)}>Show all kernels</Button>}
      />
    );
  }
  return (
    <EmptyState title="No kernels yet" action={<ButtonLink to="/searches/new">New search</ButtonLink>}>
      <p>A search that ends with a verified candidate that is surely faster than a baseline keeps it here.</p>
    </EmptyState>
  );
}
