import { type FormEvent, useId, useState } from "react";
import type { Listing } from "../../app/listing";
import { Button, Dialog, Field, IconButton, TextInput, visible } from "../../design";
import styles from "./Searches.module.css";
import { choiceOf, useSaved } from "./saved";

/** Filters and sorts under a name: one press brings them back. */
export function SavedFilters({ listing }: { listing: Listing }) {
  const { saved, save, forget } = useSaved();
  const [naming, setNaming] = useState(false);
  const here = choiceOf(listing.params);
  const known = saved.some(({ query }) => query === here);
  if (saved.length === 0 && !here) return null;
  return (
    <div className={styles.saved}>
      {saved.length > 0 && (
        <ul aria-label="Saved filters">
          {saved.map(({ name, query }) => (
            <li key={name}>
              <Button
                kind={query === here ? "primary" : "plain"}
                aria-pressed={query === here}
                onClick={() => listing.replaceAll(new URLSearchParams(query === here ? "" : query))}
              >
                {visible(name)}
              </Button>
              <IconButton label={`Forget ${visible(name)}`} icon="✕" onClick={() => forget(name)} />
            </li>
          ))}
        </ul>
      )}
      {here && !known && (
        <Button kind="quiet" onClick={() => setNaming(true)}>
          Save these filters
        </Button>
      )}
      {naming && (
        <NameDialog
          onClose={() => setNaming(false)}
          onName={(name) => {
            save({ name, query: here });
            setNaming(false);
          }}
        />
      )}
    </div>
  );
}

function NameDialog({ onClose, onName }: { onClose: () => void; onName: (name: string) => void }) {
  const [name, setName] = useState("");
  const form = useId();
  function submit(event: FormEvent) {
    event.preventDefault();
    if (name.trim()) onName(name.trim());
  }
  return (
    <Dialog
      open
      title="Save these filters"
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" type="submit" form={form} disabled={!name.trim()}>
            Save
          </Button>
        </>
      }
    >
      <form id={form} onSubmit={submit}>
        <Field label="Name" hint="Kept in this browser. To share them, copy the address.">
          <TextInput value={name} maxLength={40} onChange={(event) => setName(event.currentTarget.value)} />
        </Field>
      </form>
    </Dialog>
  );
}
