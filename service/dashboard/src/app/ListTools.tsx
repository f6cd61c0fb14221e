import { type ReactNode, useEffect, useState } from "react";
import { useOpNames, useOptions } from "../api/queries";
import { Button, format, TextInput, visible } from "../design";
import { useMedia } from "../design/media";
import styles from "./ListTools.module.css";
import type { Listing } from "./listing";

/** A row of filters above a list. */
export function Filters({ children }: { children: ReactNode }) {
  return (
    <search aria-label="Filters" className={styles.filters}>
      {children}
    </search>
  );
}

interface ChipsProps {
  label: string;
  options: readonly string[];
  chosen: readonly string[];
  onChange: (chosen: string[]) => void;
}

/** Toggles of which any number may be on; none on means all. */
export function Chips({ label, options, chosen, onChange }: ChipsProps) {
  return (
    <fieldset className={styles.chips}>
      <legend className="visually-hidden">{label}</legend>
      {options.map((option) => {
        const on = chosen.includes(option);
        return (
          <button
            key={option}
            type="button"
            aria-pressed={on}
            className={styles.chip}
            onClick={() => onChange(on ? chosen.filter((other) => other !== option) : [...chosen, option])}
          >
            {format.words(option)}
          </button>
        );
      })}
    </fieldset>
  );
}

interface ChoiceProps {
  label: string;
  /** What stands for no filter: "All ops". */
  all: string;
  options: readonly string[];
  /** What is shown for an option that is no name itself. */
  names?: ReadonlyMap<string, string>;
  value: string | null;
  onChange: (value: string | null) => void;
}

/** One of several names, or all; a value that the address brought is kept though it is not among the names. */
export function Choice({ label, all, options, names, value, onChange }: ChoiceProps) {
  const shown = value && !options.includes(value) ? [value, ...options] : options;
  return (
    <select
      aria-label={label}
      className={styles.choice}
      value={value ?? ""}
      onChange={(event) => onChange(event.currentTarget.value || null)}
    >
      <option value="">{all}</option>
      {shown.map((option) => (
        <option key={option} value={option}>
          {visible(names?.get(option) ?? option)}
        </option>
      ))}
    </select>
  );
}

interface OpAndTargetProps {
  listing: Listing;
  /** What is listed: only ops that have some are offered. */
  of: "searches" | "archived" | "kernels";
}

/** The filters of lists whose rows have an op and a target. */
export function OpAndTarget({ listing: { params, set }, of }: OpAndTargetProps) {
  const ops = useOpNames(of);
  const options = useOptions();
  return (
    <>
      <Choice
        label="Op"
        all="All ops"
        options={ops.data ?? []}
        value={params.get("op")}
        onChange={(op) => set({ op })}
      />
      <Choice
        label="Target"
        all="All targets"
        options={options.data?.targets.map(({ target }) => target) ?? []}
        value={params.get("target")}
        onChange={(target) => set({ target })}
      />
    </>
  );
}

/** Whether a list has room for a column of every baseline. */
export function useRoomForBaselines(): boolean {
  return useMedia("(min-width: 1400px)");
}

const SETTLE_MS = 300;

/** Text to look for; told when typing rests. */
export function TextFilter({
  label,
  value,
  onChange,
}: {
  label: string;
  value: string;
  onChange: (value: string) => void;
}) {
  const [text, setText] = useState(value);
  const [told, setTold] = useState(value);
  if (told !== value) {
    setTold(value);
    setText(value);
  }
  useEffect(() => {
    if (text === value) return;
    const timer = setTimeout(() => onChange(text.trim()), SETTLE_MS);
    return () => clearTimeout(timer);
  }, [text, value, onChange]);
  return (
    <TextInput
      type="search"
      aria-label={label}
      placeholder={label}
      className={styles.text}
      maxLength={128}
      value={text}
      onChange={(event) => setText(event.currentTarget.value)}
    />
  );
}

/** The way to the pages around this one; nothing where all fits on one. */
export function Pager({ listing, next, shown }: { listing: Listing; next: string | null; shown: number }) {
  if (!next && listing.after === null) return null;
  return (
    <nav aria-label="Pages" className={styles.pager}>
      <Button disabled={listing.after === null} onClick={listing.toPrevious}>
        {listing.page === null ? "First page" : "Previous page"}
      </Button>
      <Button disabled={!next} onClick={() => next && listing.toNext(next)}>
        Next page
      </Button>
      <span className={styles.where}>
        {listing.page !== null && `Page ${listing.page}, `}
        {format.count(shown)} shown
      </span>
    </nav>
  );
}
