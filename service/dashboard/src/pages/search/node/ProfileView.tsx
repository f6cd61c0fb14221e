import { useState } from "react";
import { fetchTrace, type ProfileDocument, useRequestProfile } from "../../../api/node";
import { type NodeDocument, useProfile } from "../../../api/queries";
import { Loading } from "../../../app/Page";
import {
  Button,
  type Column,
  download,
  EmptyState,
  ErrorNotice,
  format,
  StateBadge,
  Table,
  Time,
  Untrusted,
} from "../../../design";
import styles from "./Node.module.css";
import { Section } from "./Section";

/** What the candidate's calls run, as a profiler saw it. */
export function ProfileView({ node }: { node: NodeDocument }) {
  const query = useProfile(node.id);
  const request = useRequestProfile(node.id);
  const ask = (label: string) =>
    node.source && (
      <Button onClick={() => request.mutate()} busy={request.isPending}>
        {label}
      </Button>
    );
  if (!node.source) {
    return <EmptyState title="Nothing to profile">The node has no code.</EmptyState>;
  }
  return (
    <div className={styles.stack}>
      {request.isError && (
        <ErrorNotice error={request.error} what="The profile was not asked for" safe="Nothing has changed." />
      )}
      <Loading query={query}>
        {(profile) =>
          profile === null ? (
            <EmptyState title="Not profiled yet" action={ask("Profile a few calls")}>
              A judge runs a few calls of the candidate under a profiler. It counts towards no limit, and
              decides nothing.
            </EmptyState>
          ) : (
            <Profile profile={profile} ask={ask} />
          )
        }
      </Loading>
    </div>
  );
}

const UNDER_WAY = new Set(["pending", "running"]);

function Profile({ profile, ask }: { profile: ProfileDocument; ask: (label: string) => React.ReactNode }) {
  return (
    <>
      <div className={styles.toolbar}>
        <div className={styles.row}>
          <StateBadge state={profile.state === "pending" ? "queued" : profile.state} />
          <span className={styles.muted}>
            {profile.calls !== null && (
              <>
                {profile.calls} calls on workload <Untrusted text={profile.workload} />,{" "}
                <Untrusted text={profile.device} />,{" "}
              </>
            )}
            asked for <Time at={profile.created_at} />
          </span>
        </div>
        {!UNDER_WAY.has(profile.state) && ask("Profile again")}
      </div>
      {profile.state === "pending" && <p>It waits for a judge of this target.</p>}
      {profile.state === "running" && <p>A judge runs the candidate under a profiler.</p>}
      {profile.state === "failed" && (
        <p role="alert" className={styles.bad}>
          There is no profile: <Untrusted text={profile.reason ?? "no reason is known"} />
        </p>
      )}
      {profile.state === "done" && <Rows profile={profile} />}
    </>
  );
}

type ProfileRow = ProfileDocument["rows"][number];

function columnsOf(rows: readonly ProfileRow[]): Column<ProfileRow>[] {
  const whole = Math.max(...rows.map(({ total_us }) => total_us));
  const launched = rows.some(({ launch }) => launch);
  return [
    {
      key: "name",
      header: "Name",
      sortBy: (row) => row.name,
      cell: (row) => (
        <code className={styles.breakable}>
          <Untrusted text={row.name} />
        </code>
      ),
    },
    {
      key: "kind",
      header: "Kind",
      sortBy: (row) => row.kind,
      cell: (row) => <Untrusted text={format.words(row.kind)} />,
    },
    {
      key: "count",
      header: "Count",
      numeric: true,
      sortBy: (row) => row.count,
      cell: (row) => format.count(row.count),
    },
    {
      key: "total",
      header: "Total",
      numeric: true,
      sortBy: (row) => row.total_us,
      cell: (row) => format.micros(row.total_us),
    },
    {
      key: "share",
      header: "Of the longest",
      numeric: true,
      cell: (row) => format.percent(whole > 0 ? row.total_us / whole : null),
    },
    {
      key: "mean",
      header: "Mean",
      numeric: true,
      sortBy: (row) => row.mean_us,
      cell: (row) => format.micros(row.mean_us),
    },
    ...(launched
      ? [
          {
            key: "launch",
            header: "First launch",
            cell: (row: ProfileRow) => <Untrusted text={launchInWords(row.launch ?? null)} />,
          },
        ]
      : []),
  ];
}

/** A kernel's first launch in a line. */
function launchInWords(launch: Record<string, unknown> | null): string {
  return Object.entries(launch ?? {})
    .filter(([, value]) => value !== null && value !== undefined)
    .map(([name, value]) => `${format.words(name)} ${Array.isArray(value) ? value.join("×") : String(value)}`)
    .join(", ");
}

function Rows({ profile }: { profile: ProfileDocument }) {
  const { rows, nsight } = profile;
  return (
    <>
      <Section title="Where the time goes" actions={<TraceButton profile={profile} />}>
        <Table
          caption="What the profiled calls ran"
          columns={columnsOf(rows)}
          rows={rows}
          rowKey={(row) => `${row.kind}-${row.name}`}
          initialSort={{ key: "total", descending: true }}
          empty="The profiler saw nothing."
        />
        <p className={styles.muted}>
          As the process said in which the candidate ran: a help in reading, not a measurement of the judge's.
        </p>
      </Section>
      {nsight && (
        <Section title="Nsight Compute">
          {nsight.reason && (
            <p className={styles.muted}>
              <Untrusted text={nsight.reason} />
            </p>
          )}
          {nsight.kernels.map((kernel) => (
            <Table
              key={kernel.name}
              caption={`Metrics of ${kernel.name}`}
              columns={METRICS}
              rows={Object.entries(kernel.metrics)}
              rowKey={([name]) => name}
            />
          ))}
        </Section>
      )}
    </>
  );
}

const METRICS: readonly Column<[string, number]>[] = [
  { key: "metric", header: "Metric", cell: ([name]) => <Untrusted text={name} /> },
  { key: "value", header: "Mean", numeric: true, cell: ([, value]) => value.toLocaleString("en-GB") },
];

function TraceButton({ profile }: { profile: ProfileDocument }) {
  const [busy, setBusy] = useState(false);
  const [failed, setFailed] = useState<unknown>(null);
  async function save() {
    setBusy(true);
    setFailed(null);
    try {
      const trace = await fetchTrace(profile.node_id);
      if (!trace) throw new Error("The profile has no trace.");
      download(`${profile.id}.trace.json`, JSON.stringify(trace), "application/json");
    } catch (error) {
      setFailed(error);
    } finally {
      setBusy(false);
    }
  }
  return (
    <>
      <Button onClick={save} busy={busy} title="For chrome://tracing or Perfetto">
        Download Chrome trace
      </Button>
      {failed !== null && <ErrorNotice error={failed} what="The trace was not read" />}
    </>
  );
}
