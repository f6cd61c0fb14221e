import { type FormEvent, type ReactNode, useId, useState } from "react";
import { idempotencyKey } from "../../../api/client";
import { type IdeaRequest, useAddIdea } from "../../../api/node";
import { asProblem } from "../../../api/problem";
import { type NodeDocument, useOptions } from "../../../api/queries";
import {
  Button,
  Dialog,
  ErrorNotice,
  Field,
  format,
  Select,
  TextArea,
  TextInput,
  useToast,
} from "../../../design";
import styles from "./Node.module.css";

const MORE = [
  ["evidence", "Evidence", "What speaks for it: a measurement, a paper"],
  ["expected_gain", "Expected gain", null],
  ["risk", "Risk", null],
  ["sketch", "Sketch", "Pseudo-code, where it helps"],
] as const;

interface IdeaDialogProps {
  node: Pick<NodeDocument, "id" | "seq" | "search_id" | "technique">;
  /** Above the fields, where another node may be chosen. */
  parentChooser?: ReactNode;
  onClose: () => void;
}

/** A person's idea for the search, to be built on a node. */
export function IdeaDialog({ node, parentChooser, onClose }: IdeaDialogProps) {
  const [key, setKey] = useState(idempotencyKey);
  const form = useId();
  const techniques = useOptions();
  const add = useAddIdea(node.search_id);
  const toast = useToast();
  const problem = add.isError ? asProblem(add.error) : null;

  function submit(event: FormEvent<HTMLFormElement>) {
    event.preventDefault();
    const data = new FormData(event.currentTarget);
    const text = (name: string) => String(data.get(name) ?? "");
    const idea: IdeaRequest = {
      technique: text("technique") as IdeaRequest["technique"],
      title: text("title"),
      mechanism: text("mechanism"),
      evidence: text("evidence"),
      expected_gain: text("expected_gain"),
      risk: text("risk"),
      sketch: text("sketch"),
      parent: node.id,
      codes: Number(text("codes")),
    };
    add.mutate(
      { key, idea },
      {
        onSuccess: ({ nodes }) => {
          toast(
            nodes.length === 1 ? "The idea is in the tree" : `The idea is in the tree, ${nodes.length} times`,
          );
          onClose();
        },
        // A refused request may be mended and sent again: as another one.
        onError: () => setKey(idempotencyKey()),
      },
    );
  }

  return (
    <Dialog
      open
      title={`An idea on top of ${node.seq === 0 ? "the reference" : `node #${node.seq}`}`}
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" type="submit" form={form} busy={add.isPending} disabled={!techniques.data}>
            Add the idea
          </Button>
        </>
      }
    >
      <form id={form} onSubmit={submit} className={styles.stack}>
        {techniques.isError && (
          <ErrorNotice error={techniques.error} onRetry={() => void techniques.refetch()} />
        )}
        {parentChooser}
        <Field label="Technique" error={problem?.of("technique")}>
          <Select name="technique" defaultValue={node.technique ?? undefined} key={String(!techniques.data)}>
            {techniques.data?.techniques.map((name) => (
              <option key={name} value={name}>
                {format.words(name)}
              </option>
            ))}
          </Select>
        </Field>
        <Field label="Title" hint="The idea in one line" error={problem?.of("title")}>
          <TextInput name="title" required maxLength={160} />
        </Field>
        <Field
          label="Mechanism"
          hint="What it changes, and why that makes it faster"
          error={problem?.of("mechanism")}
        >
          <TextArea name="mechanism" required maxLength={4000} rows={4} />
        </Field>
        <details>
          <summary>More to say</summary>
          <div className={styles.stack}>
            {MORE.map(([name, label, hint]) => (
              <Field key={name} label={label} hint={hint} error={problem?.of(name)}>
                <TextArea name={name} maxLength={4000} rows={2} />
              </Field>
            ))}
          </div>
        </details>
        <Field
          label="Candidates"
          hint="Codes to be written for it, independently of each other"
          error={problem?.of("codes")}
        >
          <TextInput name="codes" type="number" min={1} max={16} defaultValue={1} required />
        </Field>
        {problem && (
          <ErrorNotice error={problem} what="The idea was not added" safe="The search is as it was." />
        )}
      </form>
    </Dialog>
  );
}
