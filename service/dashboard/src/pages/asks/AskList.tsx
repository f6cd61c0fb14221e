import { Link } from "react-router";
import { type AskState, type AskSummary, items, useAsks } from "../../api/queries";
import { Choice, Filters } from "../../app/ListTools";
import { useListing } from "../../app/listing";
import { Loading } from "../../app/Page";
import { Button, type Column, EmptyState, format, StateBadge, Table, Time, Untrusted } from "../../design";
import styles from "./Asks.module.css";
import { readDraft } from "./draft";
import { kindOf } from "./kinds";
import { STATE_NAMES, STATES, stateOf } from "./states";

const ASK: readonly Column<AskSummary>[] = [
  {
    key: "kind",
    header: "Asks for",
    sortBy: (row) => row.kind,
    cell: (row) => (
      <>
        <Link to={`/asks/${encodeURIComponent(row.id)}`}>{kindOf(row.kind).what}</Link>
        {row.state === "open" && readDraft(row.id) && <span className={styles.aside}> · draft</span>}
        {(row.issue ?? 0) > 0 && (
          <span className={styles.aside}> · asked {format.count((row.issue ?? 0) + 1)} times</span>
        )}
      </>
    ),
  },
  {
    key: "node",
    header: "For",
    wide: true,
    sortBy: (row) => row.seq,
    cell: (row) => (
      <Link to={`/searches/${encodeURIComponent(row.search_id)}?node=${encodeURIComponent(row.node_id)}`}>
        #{row.seq} <Untrusted text={row.title ?? "the reference"} />
      </Link>
    ),
  },
];

const SEARCH: Column<AskSummary> = {
  key: "search",
  header: "Search",
  wide: true,
  sortBy: (row) => row.op_name,
  cell: (row) => (
    <>
      <Link to={`/searches/${encodeURIComponent(row.search_id)}?tab=asks`}>
        <Untrusted text={row.op_name} />
      </Link>
      <span className={styles.aside}>
        {" "}
        on <Untrusted text={row.target} />
      </span>
    </>
  ),
};

const WHEN: readonly Column<AskSummary>[] = [
  {
    key: "state",
    header: "State",
    lead: true,
    sortBy: (row) => row.state,
    cell: (row) => <StateBadge state={row.state} />,
  },
  {
    key: "opened",
    header: "Asked",
    numeric: true,
    sortBy: (row) => row.created_at,
    cell: (row) => <Time at={row.created_at} />,
  },
  {
    key: "until",
    header: "Expires, or answered by",
    sortBy: (row) => row.expires_at,
    cell: (row) => <Until ask={row} />,
  },
];

function Until({ ask }: { ask: AskSummary }) {
  if (ask.answered_by !== null)
    return (
      <>
        <Untrusted text={ask.answered_by} />, <Time at={ask.answered_at} />
      </>
    );
  if (ask.state !== "open") return format.NONE;
  return ask.expires_at == null ? "never" : <Time at={ask.expires_at} />;
}

/** Asks by their state, of the given search, or of the one that `?search=` names, or of all. */
export default function AskList({ searchId }: { searchId?: string }) {
  const { params, set } = useListing();
  const state = stateOf(params);
  const only = searchId ?? params.get("search");
  const listed = state !== "all" && { state };
  const query = useAsks({ ...listed, ...(only && { search_id: only }) });
  const rows = items(query.data);
  // One search's rows would leave nothing else to choose.
  const others = useAsks({ ...listed, ...(searchId && { search_id: searchId }) });
  const searches = new Map(
    [...items(others.data), ...rows].map((row) => [
      row.search_id,
      `${row.op_name} on ${row.target}, ${row.search_id}`,
    ]),
  );
  const columns = [...ASK, ...(searchId ? [] : [SEARCH]), ...WHEN];
  return (
    <div className={styles.stack}>
      <Filters>
        <Choice
          label="State"
          all="Open"
          options={STATES}
          names={STATE_NAMES}
          value={state === "open" ? null : state}
          onChange={(value) => set({ state: value })}
        />
        {!searchId && (
          <Choice
            label="Search"
            all="All searches"
            options={[...searches.keys()]}
            names={searches}
            value={only}
            onChange={(search) => set({ search })}
          />
        )}
      </Filters>
      <Loading query={query}>
        {() =>
          rows.length === 0 ? (
            <Nobody state={state} />
          ) : (
            <Table cards caption="Asks" columns={columns} rows={rows} rowKey={(row) => row.id} />
          )
        }
      </Loading>
      {query.hasNextPage && (
        <div>
          <Button busy={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>
            Older asks
          </Button>
        </div>
      )}
    </div>
  );
}

function Nobody({ state }: { state: AskState | "all" }) {
  if (state === "all") return <EmptyState title="Nothing was asked" />;
  if (state !== "open") return <EmptyState title={`No ask is ${state}`} />;
  return (
    <EmptyState title="Nothing is asked now">
      <p>
        A search in agent mode asks here for what it would otherwise ask a model. Start one with the model
        "agent", and answer here, with <code>warpsmith tell</code>, or with a coding agent over MCP.
      </p>
    </EmptyState>
  );
}
