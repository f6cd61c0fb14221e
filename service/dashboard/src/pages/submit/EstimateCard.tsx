import type { Schemas } from "../../api/client";
import { Card, format, Untrusted } from "../../design";
import styles from "./Submit.module.css";

type Estimate = Schemas["EstimateDocument"];
type Forecast = Schemas["ForecastDocument"];

const ROWS: readonly { name: string; value: (forecast: Forecast) => string }[] = [
  { name: "Cost", value: ({ cost_usd }) => format.money(cost_usd) },
  { name: "Candidates", value: ({ candidates }) => format.count(candidates) },
  { name: "Model calls", value: ({ model_calls }) => format.count(model_calls) },
  { name: "Tokens", value: ({ tokens }) => format.count(tokens) },
];

/** What the search will cost: expected, and at worst. */
export function EstimateCard({ estimate, updating }: { estimate: Estimate | undefined; updating: boolean }) {
  return (
    <Card title="What it will cost" actions={updating && <span className={styles.muted}>updating…</span>}>
      {!estimate ? (
        <p className={styles.muted}>The estimate comes once the spec is valid and nothing is missing.</p>
      ) : (
        <>
          <table className={styles.estimate}>
            <thead>
              <tr>
                <td />
                <th scope="col">Expected</th>
                <th scope="col">At worst</th>
              </tr>
            </thead>
            <tbody>
              {ROWS.map(({ name, value }) => (
                <tr key={name}>
                  <th scope="row">{name}</th>
                  <td>{value(estimate.expected)}</td>
                  <td>
                    {estimate.worst.complete ? "" : "over "}
                    {value(estimate.worst)}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
          <p className={styles.muted}>
            Sweeps of screenings: at most {format.duration(estimate.sweep_seconds)} on the device
          </p>
          {estimate.unpriced.length > 0 && (
            <p className={styles.warning}>
              No price is known for <Untrusted text={estimate.unpriced.join(", ")} />: limit tokens in place
              of money, or give the service a file of prices.
            </p>
          )}
          <p className={styles.muted}>
            Would end because: <Untrusted text={estimate.expected.ends} />
          </p>
          <details className={styles.more}>
            <summary>What is assumed</summary>
            <ul className={styles.assumptions}>
              {estimate.assumptions.map((assumption) => (
                <li key={assumption}>
                  <Untrusted text={assumption} />
                </li>
              ))}
            </ul>
          </details>
        </>
      )}
    </Card>
  );
}
