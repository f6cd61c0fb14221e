import { type ReactNode, use } from "react";
import { Link } from "react-router";
import { type SystemDocument, useSystem, useWorkers, type WorkerDocument } from "../../api/queries";
import { Loading, Page } from "../../app/Page";
import { DownSince } from "../../app/useService";
import {
  Badge,
  ButtonLink,
  Card,
  type Column,
  CopyButton,
  EmptyState,
  format,
  Stat,
  StateBadge,
  Stats,
  Table,
  Time,
  Untrusted,
} from "../../design";
import { Devices } from "./Devices";
import { type Finding, findings } from "./findings";
import { Imports } from "./Imports";
import styles from "./System.module.css";

export default function SystemPage() {
  const system = useSystem();
  const workers = useWorkers();
  const down = use(DownSince);
  const rows = workers.data?.items;
  const fails = [system, workers].some(({ isError, failureCount }) => isError || failureCount > 0);
  const lastRead = down !== null || fails ? system.dataUpdatedAt / 1000 : null;
  return (
    <Page
      title="System"
      actions={
        <span className={styles.detail}>
          {lastRead ? (
            <>
              last read <Time at={lastRead} />
            </>
          ) : (
            "read anew every few seconds"
          )}
        </span>
      }
    >
      <Loading query={system}>
        {(data) => (
          <Known past={lastRead !== null}>
            {rows && <Findings found={findings(data, rows)} lastRead={lastRead} />}
            <Counts system={data} past={lastRead !== null} />
            <Queues queues={data.queues} />
            <Quotas quotas={data.quotas} />
          </Known>
        )}
      </Loading>
      <Imports />
      <Card title="Workers">
        <Loading query={workers}>
          {({ items }) => (
            <Known past={lastRead !== null}>
              <Workers workers={items} />
            </Known>
          )}
        </Loading>
      </Card>
      {system.data && (
        <>
          <Devices devices={system.data.devices} />
          <House system={system.data} />
        </>
      )}
    </Page>
  );
}

/** What is known of the house; without its colours where it is only what was last known. */
function Known({ past, children }: { past: boolean; children: ReactNode }) {
  return (
    <div className={styles.known} data-past={past || undefined}>
      {children}
    </div>
  );
}

/** `lastRead` in epoch seconds, where the service does not say how it is now. */
function Findings({ found, lastRead }: { found: readonly Finding[]; lastRead: number | null }) {
  if (found.length === 0) {
    return (
      <p role="status" className={styles.fine}>
        {lastRead === null ? (
          "All is well: the parts answer, and every queue has a worker."
        ) : (
          <>
            All was well when this was last read, <Time at={lastRead} />. How it is now is not known.
          </>
        )}
      </p>
    );
  }
  return (
    <Card
      title={lastRead === null ? "What needs attention" : "What needed attention when this was last read"}
    >
      <ul className={styles.findings}>
        {found.map(({ tone, what, remedy, command }) => (
          <li key={what} data-tone={tone}>
            <p className={styles.what}>
              <Untrusted text={what} />
            </p>
            <p>{remedy}</p>
            {command && (
              <div className={styles.command}>
                <code>
                  <Untrusted text={command} />
                </code>
                <CopyButton text={command} />
              </div>
            )}
          </li>
        ))}
      </ul>
    </Card>
  );
}

function Counts({ system, past }: { system: SystemDocument; past: boolean }) {
  const { searches_by_state: by } = system;
  const going = (by.running ?? 0) + (by.queued ?? 0);
  const all = Object.values(by).reduce((sum, count) => sum + count, 0);
  return (
    <Card>
      <Stats>
        <Stat label={past ? "Workers alive, last known" : "Workers alive"}>
          {format.count(system.workers_alive)}
        </Stat>
        <Stat label="Searches that go on" note={`of ${format.count(all)}`}>
          {format.count(going)}
        </Stat>
        <Stat label="Kernels kept">{format.count(system.kernels)}</Stat>
        <Stat label="Open asks">{format.count(system.asks_open)}</Stat>
        {system.checks.map(({ name, ok, detail }) => (
          <Stat
            key={name}
            label={name === "database" ? `Database, ${system.database}` : "Broker"}
            note={
              <span className={styles.note}>
                <Untrusted text={detail} />
              </span>
            }
          >
            {past ? (
              <Badge>{ok ? "answered, last known" : "did not work, last known"}</Badge>
            ) : (
              <Badge tone={ok ? "ok" : "bad"}>{ok ? "answers" : "does not work"}</Badge>
            )}
          </Stat>
        ))}
      </Stats>
    </Card>
  );
}

type Queue = SystemDocument["queues"][number];

const QUEUES: readonly Column<Queue>[] = [
  {
    key: "name",
    header: "Queue",
    cell: ({ name, role, target }) => (
      <div className={styles.stacked}>
        <strong>
          {role === "model" ? "Model requests" : "Judge of "}
          <Untrusted text={target ?? (role === "model" ? "" : name)} />
        </strong>
        <code className={styles.detail}>{name}</code>
      </div>
    ),
  },
  {
    key: "workers",
    header: "Live workers",
    lead: true,
    numeric: true,
    cell: ({ live_workers }) =>
      live_workers === 0 ? (
        <Badge tone="bad">none</Badge>
      ) : (
        <Badge tone="ok">{format.count(live_workers)}</Badge>
      ),
  },
  { key: "running", header: "Running", numeric: true, cell: (row) => format.count(row.running) },
  { key: "waiting", header: "Waiting", numeric: true, cell: (row) => format.count(row.waiting) },
  { key: "deferred", header: "Put off", numeric: true, cell: (row) => format.count(row.deferred) },
  { key: "oldest", header: "Oldest waits", numeric: true, cell: (row) => format.duration(row.oldest_s) },
];

function Queues({ queues }: { queues: readonly Queue[] }) {
  return (
    <Card title="Queues">
      <Table cards caption="Queues" columns={QUEUES} rows={queues} rowKey={(row) => row.name} />
    </Card>
  );
}

type Quota = SystemDocument["quotas"][number];

const QUOTA_NAMES: Readonly<Record<string, string>> = {
  open_searches: "Open searches",
  candidates_a_day: "Candidates a day",
  cost_usd_a_day: "US dollars for models a day",
  device_seconds_a_day: "Device seconds a day",
};

const QUOTAS: readonly Column<Quota>[] = [
  { key: "team", header: "Team", cell: (row) => <Untrusted text={row.team} /> },
  { key: "quota", header: "Quota", cell: (row) => <Untrusted text={QUOTA_NAMES[row.quota] ?? row.quota} /> },
  { key: "used", header: "Used", numeric: true, cell: (row) => format.count(row.used) },
  { key: "limit", header: "Limit", numeric: true, cell: (row) => format.count(row.limit ?? 0) },
  {
    key: "state",
    header: "State",
    lead: true,
    cell: (row) =>
      row.used >= (row.limit ?? 0) ? <Badge tone="bad">used up</Badge> : <Badge tone="ok">some left</Badge>,
  },
  {
    key: "resets",
    header: "Anew",
    numeric: true,
    cell: (row) => (row.resets_at ? <Time at={row.resets_at} /> : "as searches end"),
  },
];

function Quotas({ quotas }: { quotas: readonly Quota[] }) {
  const limited = quotas.filter(({ limit }) => limit !== null);
  if (limited.length === 0) {
    return null;
  }
  return (
    <Card title="Quotas">
      <Table
        cards
        caption="Quotas"
        columns={QUOTAS}
        rows={limited}
        rowKey={(row) => `${row.team} ${row.quota}`}
      />
    </Card>
  );
}

const WORKERS: readonly Column<WorkerDocument>[] = [
  {
    key: "name",
    header: "Worker",
    sortBy: (row) => row.name,
    cell: (row) => (
      <strong>
        <Untrusted text={row.name} />
      </strong>
    ),
  },
  {
    key: "alive",
    header: "State",
    lead: true,
    sortBy: (row) => Number(row.alive),
    cell: (row) => <StateBadge state={row.state} />,
  },
  {
    key: "hand",
    header: "In hand",
    sortBy: (row) => row.running,
    cell: (row) => (
      <div className={styles.inline}>
        {row.running === 0 ? format.NONE : format.count(row.running)}
        {row.steps.map((step) => (
          <Link
            key={`${step.node_id} ${step.kind}`}
            to={`/searches/${encodeURIComponent(step.search_id)}?node=${encodeURIComponent(step.node_id)}`}
          >
            <Untrusted text={step.kind} />
          </Link>
        ))}
      </div>
    ),
  },
  {
    key: "host",
    header: "Host",
    sortBy: (row) => row.host,
    cell: (row) => <Untrusted text={row.host} />,
  },
  {
    key: "role",
    header: "Serves",
    sortBy: (row) => `${row.role} ${row.target ?? ""}`,
    cell: (row) => <Untrusted text={row.target ? `${row.role} ${row.target}` : row.role} />,
  },
  {
    key: "device",
    header: "Device",
    cell: ({ device }) =>
      device === null ? (
        format.NONE
      ) : (
        <div className={styles.inline}>
          <Untrusted text={device.name} />
          {device.memory_bytes !== null && (
            <span className={styles.detail}>{format.bytes(device.memory_bytes)}</span>
          )}
        </div>
      ),
  },
  {
    key: "compiles",
    header: "Compiles",
    cell: ({ compiles }) => {
      const able = Object.entries(compiles).filter(([, languages]) => languages.length > 0);
      return able.length === 0 ? (
        format.NONE
      ) : (
        <div className={styles.stacked}>
          {able.map(([target, languages]) => (
            <span key={target}>
              <Untrusted text={languages.join(", ")} />{" "}
              <span className={styles.detail}>
                for <Untrusted text={target} />
              </span>
            </span>
          ))}
        </div>
      );
    },
  },
  {
    key: "version",
    header: "Version",
    sortBy: (row) => row.version,
    cell: (row) => <Untrusted text={row.version ?? format.NONE} />,
  },
  {
    key: "seen",
    header: "Seen",
    numeric: true,
    sortBy: (row) => row.seen_at,
    cell: (row) => (
      <>
        <Time at={row.seen_at} />
        <br />
        <span className={styles.muted}>
          started <Time at={row.started_at} />
        </span>
      </>
    ),
  },
];

function Workers({ workers }: { workers: readonly WorkerDocument[] }) {
  return (
    <Table
      cards
      caption="Workers"
      columns={WORKERS}
      rows={workers}
      rowKey={(row) => row.name}
      initialSort={{ key: "alive", descending: true }}
      empty={
        <EmptyState title="No worker has reported in">
          <p>
            Start them on this machine with <code>warpsmith up</code>, on another with{" "}
            <code>warpsmith worker --join</code>
          </p>
        </EmptyState>
      }
    />
  );
}

function House({ system }: { system: SystemDocument }) {
  return (
    <Card
      title="Versions"
      actions={
        <ButtonLink kind="quiet" to="/about">
          About and licences
        </ButtonLink>
      }
    >
      <dl className={styles.facts}>
        {Object.entries(system.versions).map(([name, version]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>
              <Untrusted text={version} />
            </dd>
          </div>
        ))}
        <div>
          <dt>API keys</dt>
          <dd>{system.keys_required ? "required" : "not required: it listens on this machine alone"}</dd>
        </div>
      </dl>
    </Card>
  );
}
