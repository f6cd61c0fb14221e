import { Link, useParams } from "react-router";
import { type KernelDocument, useKernel } from "../../api/queries";
import { attackInWords } from "../../app/attack";
import { Loading, Page } from "../../app/Page";
import { baselineName, inOrder } from "../../app/SpeedUp";
import {
  Badge,
  ButtonLink,
  Card,
  Code,
  CopyButton,
  format,
  Stat,
  StateBadge,
  Stats,
  Time,
  Untrusted,
} from "../../design";
import { envelopeOf, evidenceOf, hostInWords, lineageOf, type Step } from "./evidence";
import styles from "./Kernels.module.css";
import { Reverifications } from "./Reverifications";
import { standingInWords } from "./verification";
import { WorkloadTable } from "./WorkloadTable";

export default function KernelPage() {
  const { id = "" } = useParams();
  const query = useKernel(id);
  const name = query.data?.op_name ?? "Kernel";
  return (
    <Page
      title={name}
      heading={<Untrusted text={name} />}
      actions={query.data && <Actions kernel={query.data} />}
    >
      <Loading query={query}>{(kernel) => <Kernel kernel={kernel} />}</Loading>
    </Page>
  );
}

function Actions({ kernel }: { kernel: KernelDocument }) {
  const id = encodeURIComponent(kernel.id);
  return (
    <>
      <ButtonLink to={`/kernels/compare?a=${id}`}>Compare with another</ButtonLink>
      {kernel.search_id && (
        <ButtonLink
          to={`/searches/${encodeURIComponent(kernel.search_id)}?node=${encodeURIComponent(kernel.node_id ?? "")}`}
        >
          In the tree
        </ButtonLink>
      )}
    </>
  );
}

function Kernel({ kernel }: { kernel: KernelDocument }) {
  const evidence = evidenceOf(kernel);
  return (
    <>
      <p className={styles.lead}>
        <Untrusted text={kernel.title ?? format.words(kernel.technique)} />
        <span className={styles.detail}>
          {" "}
          <Untrusted text={kernel.target} />, <Untrusted text={kernel.language} />
        </span>
      </p>
      <Speeds kernel={kernel} />
      <div className={styles.columns}>
        <Standing kernel={kernel} layers={evidence.layers} searched={attackInWords(evidence.attack)} />
        <TakeHome kernel={kernel} />
      </div>
      <Reverifications kernel={kernel} />
      <Card title="Evidence">
        <WorkloadTable workloads={evidence.workloads} />
      </Card>
      <div className={styles.columns}>
        <Lineage kernel={kernel} />
        <EnvelopeCard kernel={kernel} />
      </div>
      <Card title="Code">
        <Code code={kernel.source} language="python" label="Source of the kernel" />
      </Card>
      <details className={styles.more}>
        <summary>Device, versions and fingerprint of the verification</summary>
        <Facts
          rows={[
            ["device", evidence.device ?? format.NONE],
            ...evidence.facts,
            ...evidence.versions,
            ["judge's protocol", kernel.verification ? String(kernel.verification.protocol) : format.NONE],
            ["fingerprint", evidence.fingerprint ?? format.NONE],
            ["source digest", kernel.source_digest],
          ]}
        />
      </details>
    </>
  );
}

function Speeds({ kernel }: { kernel: KernelDocument }) {
  const names = inOrder(Object.keys(kernel.speedup ?? {}));
  return (
    <Card>
      <Stats>
        <Stat label="Over the fastest baseline" note={`95 % interval ${range(kernel.ci95)}`}>
          {format.ratio(kernel.score)}
        </Stat>
        {names.map((name) => (
          <Stat key={name} label={`Over ${baselineName(name)}`} note={range(kernel.speedup_ci95?.[name])}>
            {format.ratio(kernel.speedup?.[name])}
          </Stat>
        ))}
        <Stat label="Of the physical limit" note="1 is as fast as the device allows">
          {format.percent(kernel.limit_fraction)}
        </Stat>
        {kernel.host_us && (
          <Stat label="Of the calling thread" note={hostInWords(kernel.host_us)}>
            {format.micros(kernel.host_us.plan ?? kernel.host_us.run)}
          </Stat>
        )}
      </Stats>
    </Card>
  );
}

function range(ci95: readonly number[] | undefined): string {
  const [low, high] = ci95 ?? [];
  return low === undefined || high === undefined ? "" : `${low.toFixed(2)} to ${high.toFixed(2)}`;
}

interface StandingProps {
  kernel: KernelDocument;
  layers: readonly string[];
  /** What the search for a counterexample came to. */
  searched: string | null;
}

function Standing({ kernel, layers, searched }: StandingProps) {
  const { verification } = kernel;
  const { tone, word, says } = standingInWords(verification, kernel.reverification);
  return (
    <Card title="Verification" actions={<Badge tone={tone}>{word}</Badge>}>
      <p>
        Verified <Time at={verification?.verified_at ?? kernel.created_at} /> on{" "}
        <Untrusted text={verification?.device ?? kernel.target} />. {says}
      </p>
      <p className={styles.detail}>
        {verification?.sandbox ? (
          <>
            Judged in a sandbox of level <Untrusted text={verification.sandbox} />
            {layers.length > 0 && (
              <>
                : <Untrusted text={layers.map(format.words).join(", ")} />
              </>
            )}
            .
          </>
        ) : (
          "What stood around the candidate was not recorded."
        )}
      </p>
      {searched && (
        <p className={styles.detail}>
          <Untrusted text={`${searched}.`} />
        </p>
      )}
    </Card>
  );
}

function TakeHome({ kernel }: { kernel: KernelDocument }) {
  const command = `warpsmith export ${kernel.id}`;
  const refused = kernel.refused_formats ?? [];
  return (
    <Card title="Take it home">
      <ul className={styles.formats}>
        {kernel.formats?.map(({ name, title, media_type }) => (
          <li key={name}>
            <a
              href={`/v1/kernels/${encodeURIComponent(kernel.id)}/export?format=${encodeURIComponent(name)}`}
              download
            >
              Download: {title}
            </a>{" "}
            <span className={styles.detail}>{media_type}</span>
          </li>
        ))}
      </ul>
      {refused.length > 0 && (
        <details className={styles.detail}>
          <summary>
            {refused.length === 1 ? "A format has" : `${refused.length} formats have`} no room for this kernel
          </summary>
          <ul className={styles.formats}>
            {refused.map(({ name, title, errors }) => (
              <li key={name}>
                {title}:{" "}
                <Untrusted
                  text={errors
                    .map(({ field, found, expected }) => `${field} is ${found}, expected ${expected}`)
                    .join("; ")}
                />
              </li>
            ))}
          </ul>
        </details>
      )}
      <div className={styles.command}>
        <code>{command}</code>
        <CopyButton text={command} />
      </div>
    </Card>
  );
}

function Lineage({ kernel }: { kernel: KernelDocument }) {
  const steps = lineageOf(kernel.lineage);
  return (
    <Card title="From the idea to the kernel">
      {steps.length === 0 ? (
        <p className={styles.detail}>Its line of ideas was not recorded.</p>
      ) : (
        <ol className={styles.chain}>
          {steps.map((step, at) => (
            <li key={step.nodeId ?? at}>
              <LineageStep step={step} searchId={kernel.search_id} />
            </li>
          ))}
        </ol>
      )}
    </Card>
  );
}

function LineageStep({ step, searchId }: { step: Step; searchId: string | null }) {
  const name = step.title ? <Untrusted text={step.title} /> : "The reference in PyTorch";
  const facts = [
    step.technique && format.words(step.technique),
    step.score !== null && format.ratio(step.score),
    step.repairs > 0 && (step.repairs === 1 ? "one repair" : `${step.repairs} repairs`),
  ].filter((fact) => typeof fact === "string");
  return (
    <>
      <div className={styles.step}>
        {searchId && step.nodeId ? (
          <Link to={`/searches/${encodeURIComponent(searchId)}?node=${encodeURIComponent(step.nodeId)}`}>
            {name}
          </Link>
        ) : (
          <span>{name}</span>
        )}
        {step.title && <StateBadge state={step.verdict} />}
      </div>
      {facts.length > 0 && (
        <p className={styles.detail}>
          <Untrusted text={facts.join(" · ")} />
        </p>
      )}
      {step.mechanism && (
        <p className={styles.prose}>
          <Untrusted text={step.mechanism} />
        </p>
      )}
    </>
  );
}

function EnvelopeCard({ kernel }: { kernel: KernelDocument }) {
  const { axes, inputs, outputs } = envelopeOf(kernel.envelope);
  return (
    <Card title="Envelope">
      <p className={styles.detail}>What it was verified on. Outside of it an export falls back to PyTorch.</p>
      <Facts
        rows={[
          ...axes.map(
            ({ name, verified }) => [name, verified.map((size) => format.count(size)).join(", ")] as const,
          ),
          ...inputs.map(({ name, type, note }) => [name, `${type}, ${note}`] as const),
          ...outputs.map(({ name, type }) => [name, `${type}, output`] as const),
        ]}
      />
    </Card>
  );
}

/** Names and values in two columns. */
function Facts({ rows }: { rows: readonly (readonly [string, string])[] }) {
  return (
    <dl className={styles.facts}>
      {rows.map(([name, value]) => (
        <div key={name}>
          <dt>
            <Untrusted text={name} />
          </dt>
          <dd>
            <Untrusted text={value} />
          </dd>
        </div>
      ))}
    </dl>
  );
}
