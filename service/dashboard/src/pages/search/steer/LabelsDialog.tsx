import { type FormEvent, useId, useState } from "react";
import { useLabels, useTags } from "../../../api/labels";
import { asProblem } from "../../../api/problem";
import type { SearchDocument } from "../../../api/queries";
import { Button, Dialog, ErrorNotice, Field, TextArea, TextInput, useToast, visible } from "../../../design";
import { parseTags } from "./labels";
import styles from "./Steer.module.css";

/** Names a search, tags it, and keeps notes with it. */
export function LabelsDialog({ search, onClose }: { search: SearchDocument; onClose: () => void }) {
  const [name, setName] = useState(search.name ?? "");
  const [tags, setTags] = useState((search.tags ?? []).join(", "));
  const [notes, setNotes] = useState(search.notes ?? "");
  const known = useTags().data?.map(({ tag }) => tag) ?? [];
  const form = useId();
  const toast = useToast();
  const change = useLabels();
  const problem = change.isError ? asProblem(change.error) : null;
  const wrongTag = problem?.errors.find(({ field }) => field.startsWith("tags"));

  function submit(event: FormEvent) {
    event.preventDefault();
    change.mutate(
      { ids: [search.id], labels: { name, tags: parseTags(tags), notes } },
      {
        onSuccess: () => {
          toast("Saved");
          onClose();
        },
      },
    );
  }

  return (
    <Dialog
      open
      title="Name, tags and notes"
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" type="submit" form={form} busy={change.isPending}>
            Save
          </Button>
        </>
      }
    >
      <form id={form} onSubmit={submit} className={styles.labels}>
        <Field
          label="Name"
          hint={`Empty: the op's name, ${visible(search.op_name)}`}
          error={problem?.of("name")}
        >
          <TextInput value={name} maxLength={120} onChange={(event) => setName(event.currentTarget.value)} />
        </Field>
        <Field
          label="Tags"
          hint={`Separated by commas${known.length ? `; in use: ${visible(known.slice(0, 12).join(", "))}` : ""}`}
          error={wrongTag && `Found ${visible(String(wrongTag.found))}, expected ${wrongTag.expected}`}
        >
          <TextInput value={tags} onChange={(event) => setTags(event.currentTarget.value)} />
        </Field>
        <Field label="Notes" hint="Plain text, for people. No model reads it." error={problem?.of("notes")}>
          <TextArea
            rows={6}
            value={notes}
            maxLength={20_000}
            onChange={(event) => setNotes(event.currentTarget.value)}
          />
        </Field>
      </form>
      {problem && <ErrorNotice error={problem} what="Nothing was saved" />}
    </Dialog>
  );
}
