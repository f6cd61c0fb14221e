import { describeImport } from "../../api/imports";
import { items, usePools } from "../../api/queries";
import {
  Button,
  Card,
  ErrorNotice,
  Field,
  FileButton,
  format,
  Select,
  TextInput,
  Untrusted,
  visible,
} from "../../design";
import type { Provider } from "./draft";
import type { FieldsProps } from "./fields";
import { useStorePool } from "./queries";
import styles from "./Submit.module.css";

const WORDS: Readonly<Record<Provider, { name: string; says: string }>> = {
  openai: { name: "A model", says: "An OpenAI-compatible endpoint is asked; its provider charges for it." },
  replay: {
    name: "A recorded pool",
    says: "Replies that were recorded are given again: nothing is asked, nothing is paid.",
  },
  agent: {
    name: "A person or an agent",
    says: "Every request waits under Asks until a person or an agent answers it.",
  },
};

export function ModelCard({
  draft,
  options,
  change,
  problem,
  provider,
  pool,
}: FieldsProps & { provider: Provider; pool: string }) {
  const openai = options.providers.find(({ name }) => name === "openai");
  return (
    <Card title="Who has the ideas">
      <fieldset className={styles.choices}>
        <legend className="visually-hidden">Model provider</legend>
        {(Object.keys(WORDS) as Provider[]).map((name) => (
          <label key={name} className={styles.choice}>
            <input
              type="radio"
              name="provider"
              value={name}
              checked={provider === name}
              onChange={() => change({ provider: name })}
            />
            <span>
              <strong>{WORDS[name].name}</strong>
              <span className={styles.muted}>{WORDS[name].says}</span>
            </span>
          </label>
        ))}
      </fieldset>
      {provider === "openai" && (
        <>
          <p className={openai?.ready ? styles.muted : styles.warning}>
            <Untrusted text={sentence(openai?.detail ?? "")} />
          </p>
          <div className={styles.grid}>
            <Field label="Model" error={problem("model.model")}>
              <TextInput
                placeholder={options.default_model}
                value={draft.model}
                onChange={(event) => change({ model: event.currentTarget.value })}
              />
            </Field>
            <Field label="Endpoint" hint="Empty: the service's own" error={problem("model.base_url")}>
              <TextInput
                type="url"
                placeholder="https://…/v1"
                value={draft.baseUrl}
                onChange={(event) => change({ baseUrl: event.currentTarget.value })}
              />
            </Field>
          </div>
        </>
      )}
      {provider === "replay" && <PoolField pool={pool} change={change} error={problem("model.pool")} />}
      {provider === "agent" && (
        <p className={styles.muted}>
          Answer on the page Asks, with <code>warpsmith tell</code>, or connect a coding agent with{" "}
          <code>warpsmith mcp</code>.
        </p>
      )}
    </Card>
  );
}

function sentence(text: string): string {
  return text && `${text[0]?.toUpperCase()}${text.slice(1)}.`;
}

function PoolField({
  pool,
  change,
  error,
}: Pick<FieldsProps, "change"> & { pool: string; error: string | undefined }) {
  const pools = usePools();
  const store = useStorePool();
  const rows = items(pools.data);
  const upload = (file: File) => store.mutate(file, { onSuccess: (id) => change({ pool: id }) });
  return (
    <>
      <Field label="Pool" hint="It must have been recorded for this op, target and language." error={error}>
        <Select value={pool} onChange={(event) => change({ pool: event.currentTarget.value })}>
          <option value="">{pools.data && rows.length === 0 ? "No pool is stored" : "Choose a pool…"}</option>
          {pool && !rows.some(({ id }) => id === pool) && <option value={pool}>{visible(pool)}</option>}
          {rows.map(({ id, header, replies }) => (
            <option key={id} value={id}>
              {visible(`${String(header.op)} on ${String(header.target)}`)}, {format.count(replies)} replies
            </option>
          ))}
        </Select>
      </Field>
      <div className={styles.pools}>
        <FileButton label="A pool's file" accept=".jsonl,.ndjson" busy={store.isPending} onFile={upload}>
          From a file
        </FileButton>
        {pools.hasNextPage && (
          <Button busy={pools.isFetchingNextPage} onClick={() => void pools.fetchNextPage()}>
            Older pools
          </Button>
        )}
      </div>
      {store.progress && <p role="status">The pool {describeImport(store.progress)}…</p>}
      {store.error && <ErrorNotice error={store.error} what="The pool was not stored" />}
    </>
  );
}
