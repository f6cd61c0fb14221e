import { useTags } from "../../api/labels";
import type { OptionsDocument } from "../../api/queries";
import { LANGUAGES } from "../../app/languages";
import { judgeCommand } from "../../app/workers";
import { Card, Checkbox, Field, format, Select, TextInput, Untrusted, visible } from "../../design";
import { TRY_SECONDS } from "../search/limits";
import { parseTags } from "../search/steer/labels";
import type { Draft, Provider } from "./draft";
import styles from "./Submit.module.css";
import { deviceOf, languagesOf, limitsOf, rangeOf, targetOf } from "./submission";

export interface FieldsProps {
  draft: Draft;
  options: OptionsDocument;
  change: (changes: Partial<Draft>) => void;
  /** What is wrong with a field, by its path in the request. */
  problem: (field: string) => string | undefined;
}

const OTHER = "other";

export function TargetCard({ draft, options, change, problem }: FieldsProps) {
  const target = targetOf(draft, options);
  const offered = options.targets.find((option) => option.target === target);
  const languages = languagesOf(target, options);
  const alive = offered?.live_workers ?? 0;
  return (
    <Card title="Where">
      <div className={styles.grid}>
        <Field label="Target" error={!draft.otherTarget && problem("target")}>
          <Select
            value={draft.otherTarget ? OTHER : target}
            onChange={({ currentTarget: { value } }) =>
              change(
                value === OTHER ? { otherTarget: true, target: "" } : { otherTarget: false, target: value },
              )
            }
          >
            {options.targets.map(({ target: name, live_workers }) => (
              <option key={name} value={name}>
                {name} ({live_workers === 0 ? "no live worker" : workers(live_workers)})
              </option>
            ))}
            <option value={OTHER}>Another target…</option>
          </Select>
        </Field>
        {draft.otherTarget && (
          <Field label="Its name" hint="cuda:sm_90 is an H100 or H200" error={problem("target")}>
            <TextInput
              value={draft.target}
              onChange={(event) => change({ target: event.currentTarget.value })}
            />
          </Field>
        )}
        <Field label="Language" error={problem("language")}>
          <Select
            value={languages.includes(draft.language) ? draft.language : (languages[0] ?? "")}
            disabled={languages.length < 2}
            onChange={(event) => change({ language: event.currentTarget.value })}
          >
            {languages.map((language) => (
              <option key={language} value={language}>
                {LANGUAGES[language]?.title ?? language}
              </option>
            ))}
          </Select>
        </Field>
      </div>
      {target && alive === 0 && (
        <p className={styles.warning}>
          No judge for <Untrusted text={target} /> is alive. The search would wait until one starts, on a host
          that has the device: <code>{judgeCommand(target)}</code>
        </p>
      )}
    </Card>
  );
}

function workers(count: number): string {
  return count === 1 ? "1 live worker" : `${count} live workers`;
}

export function PolicyCard({
  draft,
  options,
  change,
  problem,
  provider,
}: FieldsProps & { provider: Provider }) {
  const chosen = options.policies.find(({ name }) => name === draft.policy);
  const fallback = options.policies[0];
  const values = draft.parameters[draft.policy] ?? {};
  const set = (name: string, value: string) =>
    change({ parameters: { ...draft.parameters, [draft.policy]: { ...values, [name]: value } } });
  return (
    <Card title="How it searches">
      <Field
        label="Policy"
        hint={(chosen ?? (provider === "replay" ? undefined : fallback))?.summary}
        error={problem("policy.name") ?? problem("policy")}
      >
        <Select
          value={chosen?.name ?? ""}
          onChange={(event) => change({ policy: event.currentTarget.value })}
        >
          <option value="">
            {provider === "replay"
              ? "As the pool was recorded"
              : `${format.words(fallback?.name)}, with its defaults`}
          </option>
          {options.policies.map(({ name }) => (
            <option key={name} value={name}>
              {format.words(name)}
            </option>
          ))}
        </Select>
      </Field>
      {chosen && chosen.parameters.length > 0 && (
        <details className={styles.more}>
          <summary>Parameters of {format.words(chosen.name)}</summary>
          <div className={styles.numbers}>
            {chosen.parameters.map((parameter) => (
              <Field
                key={parameter.name}
                label={format.words(parameter.name)}
                hint={rangeOf(parameter)}
                error={problem(`policy.${parameter.name}`)}
              >
                {parameter.type === "boolean" ? (
                  <Checkbox
                    label="on"
                    checked={(values[parameter.name] || String(parameter.default)) === "true"}
                    onChange={(event) => set(parameter.name, String(event.currentTarget.checked))}
                  />
                ) : (
                  <TextInput
                    inputMode="decimal"
                    placeholder={String(parameter.default)}
                    value={values[parameter.name] ?? ""}
                    onChange={(event) => set(parameter.name, event.currentTarget.value)}
                  />
                )}
              </Field>
            ))}
          </div>
        </details>
      )}
    </Card>
  );
}

export function BudgetCard({
  draft,
  options,
  change,
  problem,
  provider,
}: FieldsProps & { provider: Provider }) {
  const target = targetOf(draft, options);
  return (
    <Card title="At most">
      <p className={styles.muted}>
        The first limit that is reached ends the search, but for two: that of tries refuses further tries,
        that of sweeps has tunables judged as written. An empty field sets no limit; for tries it is{" "}
        {format.duration(TRY_SECONDS)}
        {provider === "replay" && " (with none at all, the pool's own hold)"}.
      </p>
      <div className={styles.numbers}>
        {limitsOf(options.limits).map(({ name, label, hint }) => (
          <Field key={name} label={label} hint={hint} error={problem(`budget.${name}`)}>
            <TextInput
              inputMode="decimal"
              placeholder={name === "try_seconds" ? String(TRY_SECONDS / 60) : "no limit"}
              value={draft.budget[name] ?? ""}
              onChange={(event) => change({ budget: { ...draft.budget, [name]: event.currentTarget.value } })}
            />
          </Field>
        ))}
      </div>
      {deviceOf(target) && (
        <Field
          label="Stored kernels to begin with"
          hint={`At most ${options.most_seeds}, of similar ops; judged anew. Empty: ${provider === "replay" ? "none" : options.most_seeds}.`}
          error={problem("seeds")}
        >
          <TextInput
            inputMode="numeric"
            className={styles.short}
            placeholder={provider === "replay" ? "0" : String(options.most_seeds)}
            value={draft.seeds}
            onChange={(event) => change({ seeds: event.currentTarget.value })}
          />
        </Field>
      )}
    </Card>
  );
}

/** The name and the tags under which lists show the search. */
export function LabelsCard({ draft, change, problem }: FieldsProps) {
  const known = useTags().data?.map(({ tag }) => tag) ?? [];
  const wrongTag = parseTags(draft.tags).map((_, place) => problem(`tags[${place}]`));
  return (
    <Card title="How lists show it">
      <div className={styles.grid}>
        <Field label="Name" hint="Empty: the op's name" error={problem("name")}>
          <TextInput
            value={draft.name}
            maxLength={120}
            onChange={(event) => change({ name: event.currentTarget.value })}
          />
        </Field>
        <Field
          label="Tags"
          hint={`Separated by commas${known.length ? `; in use: ${visible(known.slice(0, 12).join(", "))}` : ""}`}
          error={problem("tags") ?? wrongTag.find(Boolean)}
        >
          <TextInput value={draft.tags} onChange={(event) => change({ tags: event.currentTarget.value })} />
        </Field>
      </div>
    </Card>
  );
}
