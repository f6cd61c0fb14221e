import { type SearchDocument, useOp } from "../../api/queries";
import { Loading } from "../../app/Page";
import { Card, Code } from "../../design";
import styles from "./Search.module.css";

/** What was asked for: the op's spec, and the policy, budget and model of the search. */
export default function SpecTab({ search }: { search: SearchDocument }) {
  const query = useOp(search.op_id);
  const request = { policy: search.policy, budget: search.budget, model: search.model };
  return (
    <div className={styles.spec}>
      <Loading query={query}>
        {(op) => (
          <Card title="Op">
            <Reference source={op.spec.reference} />
            <Code code={JSON.stringify(op.spec, null, 2)} label="The op's spec as JSON" />
          </Card>
        )}
      </Loading>
      <Card title="Search">
        <Code code={JSON.stringify(request, null, 2)} label="Policy, budget and model as JSON" />
      </Card>
    </div>
  );
}

function Reference({ source }: { source: unknown }) {
  return typeof source === "string" ? (
    <Code code={source} language="python" label="The op's reference" />
  ) : null;
}
