import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useState } from "react";
import { useNavigate } from "react-router";
import { answer, api } from "../../api/client";
import { asProblem } from "../../api/problem";
import { items, keys, type OptionsDocument, useOptions, usePools } from "../../api/queries";
import { Loading, Page } from "../../app/Page";
import { Button, ErrorNotice } from "../../design";
import { type Draft, dropDraft, keepDraft, keyFor, readDraft } from "./draft";
import { EstimateCard } from "./EstimateCard";
import { BudgetCard, LabelsCard, PolicyCard, TargetCard } from "./fields";
import { MeaningCard } from "./MeaningCard";
import { ModelCard } from "./ModelCard";
import { useCheckedSpec, useEstimate, useSettled } from "./queries";
import { SpecCard } from "./SpecCard";
import styles from "./Submit.module.css";
import {
  deviceOf,
  optionsFor,
  poolOf,
  providerOf,
  type Submission,
  submissionOf,
  targetOf,
} from "./submission";

const START = ["start"];

export default function SubmitPage() {
  const options = useOptions();
  return (
    <Page title="New search">
      <Loading query={options}>{(data) => <Form options={data} />}</Loading>
    </Page>
  );
}

function Form({ options: all }: { options: OptionsDocument }) {
  const [draft, setDraft] = useState<Draft>(readDraft);
  const change = useCallback((changes: Partial<Draft>) => setDraft((old) => ({ ...old, ...changes })), []);
  const onText = useCallback((text: string) => change({ text }), [change]);
  const client = useQueryClient();
  const pools = usePools();
  const start = useStart();

  const text = useSettled(draft.text);
  const check = useCheckedSpec(text);
  const isCurrent = text === draft.text && !check.isPlaceholderData && draft.text.trim() !== "";
  const checked = isCurrent ? check.data : undefined;
  const unchecked = isCurrent && !checked && check.isError && !check.isFetching;
  const shown = draft.text.trim() !== "" && check.data?.valid ? check.data : undefined;

  const options = useMemo(() => optionsFor(all, shown), [all, shown]);
  const pooled = items(pools.data);
  const made = checked?.valid ? submissionOf(draft, checked, options, pooled) : null;
  const body = made?.body ?? null;
  const asked = useSettled(body && JSON.stringify(body));
  const estimate = useEstimate(asked ? (JSON.parse(asked) as Submission) : null);

  useEffect(() => {
    if (start.isIdle || start.isError) keepDraft(draft);
  }, [draft, start.isIdle, start.isError]);

  const refused = [start.error, estimate.error].map((error) => error && asProblem(error));
  const problem = (field: string) =>
    made?.problems?.[field] ?? refused.map((error) => error?.of(field)).find(Boolean);
  const pool = poolOf(draft, shown?.name, targetOf(draft, options), pooled);
  const provider = providerOf(draft, options, pool);
  const fields = { draft, options, change, problem, provider };
  return (
    <form
      className={styles.form}
      onSubmit={(event) => {
        event.preventDefault();
        // Asked of the client: a second click may come before the button is drawn as busy.
        if (body && client.isMutating({ mutationKey: START }) === 0) start.mutate(body);
      }}
    >
      <div className={styles.column}>
        <SpecCard
          text={draft.text}
          onChange={onText}
          errors={checked?.errors ?? null}
          valid={checked?.valid ?? false}
          unchecked={unchecked}
        />
        {unchecked && <ErrorNotice error={check.error} what="The spec was not checked" />}
        {shown && <MeaningCard spec={shown} device={deviceOf(targetOf(draft, options))} />}
      </div>
      <div className={styles.column}>
        <TargetCard {...fields} />
        <ModelCard {...fields} pool={pool} />
        <PolicyCard {...fields} />
        <BudgetCard {...fields} />
        <LabelsCard {...fields} />
        <EstimateCard
          estimate={body ? estimate.data : undefined}
          updating={body !== null && (estimate.isFetching || asked !== JSON.stringify(body))}
        />
        {estimate.error && !start.error && (
          <ErrorNotice error={estimate.error} what="This could not be started" />
        )}
        {start.error && (
          <ErrorNotice
            error={start.error}
            what="The search was not started"
            safe={
              asProblem(start.error).status === 0
                ? "Start again: if the request had arrived, its search is shown and no second one begins."
                : "Nothing was stored, and what you filled in is kept."
            }
          />
        )}
        <div className={styles.start}>
          <Button type="submit" kind="primary" busy={start.isPending} disabled={!body}>
            Start the search
          </Button>
          {!body && (
            <span className={styles.muted}>
              {reasonNot(draft, unchecked ? "failed" : checked?.valid, made?.problems ?? null)}
            </span>
          )}
        </div>
      </div>
    </form>
  );
}

function reasonNot(
  draft: Draft,
  valid: boolean | "failed" | undefined,
  problems: Readonly<Record<string, string>> | null,
) {
  if (draft.text.trim() === "") return "An op spec comes first.";
  if (valid === "failed") return "The spec was not checked.";
  if (valid === undefined) return "The spec is being checked.";
  if (!valid) return "The spec has fields to mend.";
  return Object.values(problems ?? {})[0] ?? "";
}

/** Starts a search: a request that is sent twice, or whose answer is lost, starts one. */
function useStart() {
  const navigate = useNavigate();
  const client = useQueryClient();
  return useMutation({
    mutationKey: START,
    mutationFn: (body: Submission) =>
      answer(api.POST("/v1/searches", { params: { header: { "Idempotency-Key": keyFor(body) } }, body })),
    onSuccess: (search) => {
      dropDraft();
      client.setQueryData(keys.search(search.id), search);
      void client.invalidateQueries({ queryKey: ["searches"] });
      void navigate(`/searches/${encodeURIComponent(search.id)}`);
    },
  });
}
