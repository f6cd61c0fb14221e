import type { SystemDocument } from "../../api/queries";
import { Card, EmptyState, format, Time, Untrusted } from "../../design";
import styles from "./System.module.css";

type Device = SystemDocument["devices"][number];

/** Devices on which something was judged, with the peaks that were measured on them. */
export function Devices({ devices }: { devices: readonly Device[] }) {
  if (devices.length === 0) {
    return (
      <Card title="Devices">
        <EmptyState title="No device was measured yet">
          <p>
            The first candidate that a judge times brings its device with it, and the peaks measured there.
          </p>
        </EmptyState>
      </Card>
    );
  }
  return devices.map((device) => <DeviceCard key={`${device.target} ${device.name}`} device={device} />);
}

function DeviceCard({ device }: { device: Device }) {
  const fastest = Math.max(0, ...device.bandwidth.map(({ gbs }) => gbs));
  return (
    <Card
      title={<Untrusted text={device.name} />}
      actions={
        <span className={styles.detail}>
          <Untrusted text={device.target} />, seen <Time at={device.seen_at} />
        </span>
      }
    >
      <div className={styles.peaks}>
        <section>
          <h3>Measured bandwidth</h3>
          <dl className={styles.bars}>
            {device.bandwidth.map(({ bytes, gbs }) => (
              <div key={bytes}>
                <dt>{format.bytes(bytes)}</dt>
                <dd>
                  <span className={styles.bar} style={{ width: `${fastest ? (60 * gbs) / fastest : 0}%` }} />
                  {format.rate(gbs * 1e9, "B/s")}
                </dd>
              </div>
            ))}
          </dl>
        </section>
        {device.rates.length > 0 && (
          <section>
            <h3>Measured rates</h3>
            <dl className={styles.facts}>
              {device.rates.map(({ arithmetic, gflops }) => (
                <div key={arithmetic}>
                  <dt>
                    <Untrusted text={format.words(arithmetic)} />
                  </dt>
                  <dd>{format.rate(gflops * 1e9, "FLOP/s")}</dd>
                </div>
              ))}
            </dl>
          </section>
        )}
        <section>
          <h3>What it is</h3>
          <dl className={styles.facts}>
            {factsOf(device).map(([name, value]) => (
              <div key={name}>
                <dt>
                  <Untrusted text={format.words(name)} />
                </dt>
                <dd>
                  <Untrusted text={value} />
                </dd>
              </div>
            ))}
          </dl>
        </section>
      </div>
    </Card>
  );
}

function factsOf({ facts, versions, sandbox }: Device): [string, string][] {
  const plain = Object.entries(facts)
    .filter(([, value]) => value !== null && typeof value !== "object")
    .map(([name, value]): [string, string] => [
      name,
      name.endsWith("bytes") && typeof value === "number" ? format.bytes(value) : String(value),
    ]);
  return [...plain, ...Object.entries(versions), ["sandbox", format.words(sandbox)]];
}
