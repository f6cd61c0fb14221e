import { type FormEvent, useId, useState } from "react";
import { asProblem } from "../../../api/problem";
import type { SearchDocument } from "../../../api/queries";
import { useChangeBudget } from "../../../api/steering";
import { Button, Dialog, ErrorNotice, Field, format, TextInput, useToast } from "../../../design";
import { amount, LIMIT_LABELS, LIMITS, type LimitName, TRY_SECONDS } from "../limits";
import { changeOf, draftOf } from "./budget";
import styles from "./Steer.module.css";

const UNITS: Readonly<Partial<Record<LimitName, string>>> = {
  cost_usd: ", US dollars",
  wall_clock_s: ", seconds",
  gpu_seconds: ", seconds",
  try_seconds: ", seconds",
  sweep_seconds: ", seconds",
};

/** Sets or lifts the limits of a search that goes on. */
export function BudgetDialog({ search, onClose }: { search: SearchDocument; onClose: () => void }) {
  const [draft, setDraft] = useState(() => draftOf(search.budget));
  const form = useId();
  const toast = useToast();
  const save = useChangeBudget(search.id);
  const { change, errors } = changeOf(draft, search);
  const problem = save.isError ? asProblem(save.error) : null;
  const unchanged = Object.keys(change).length === 0;

  function submit(event: FormEvent) {
    event.preventDefault();
    save.mutate(change, {
      onSuccess: () => {
        toast("The budget is changed");
        onClose();
      },
    });
  }

  return (
    <Dialog
      open
      title="Change the budget"
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button
            kind="primary"
            type="submit"
            form={form}
            busy={save.isPending}
            disabled={unchanged || Object.keys(errors).length > 0}
          >
            Change it
          </Button>
        </>
      }
    >
      <p>
        An empty field is no limit, and {format.duration(TRY_SECONDS)} for tries. What is spent stays spent;
        the search ends at the limit that is reached first, but for two: that of tries refuses further tries,
        that of sweeps has tunables judged as written.
      </p>
      <form id={form} onSubmit={submit} className={styles.limits}>
        {LIMITS.map((name) => (
          <Field
            key={name}
            label={`${LIMIT_LABELS[name]}${UNITS[name] ?? ""}`}
            hint={hint(name, draft[name], search.spend[name])}
            error={errors[name] ?? problem?.of(`budget.${name}`)}
          >
            <TextInput
              inputMode="decimal"
              value={draft[name]}
              placeholder={name === "try_seconds" ? String(TRY_SECONDS) : "no limit"}
              onChange={({ currentTarget: { value } }) => setDraft((old) => ({ ...old, [name]: value }))}
            />
          </Field>
        ))}
      </form>
      {problem && (
        <ErrorNotice
          error={problem}
          what="The budget was not changed"
          safe="The search goes on under the old one."
        />
      )}
    </Dialog>
  );
}

/** What is spent, and what a number of seconds is in words. */
function hint(name: LimitName, text: string, used: number | null | undefined): string {
  const spent = `${amount(name, used)} spent`;
  const value = Number(text);
  const seconds = name in UNITS && name !== "cost_usd";
  return seconds && text.trim() !== "" && value >= 60 ? `${amount(name, value)} · ${spent}` : spent;
}
