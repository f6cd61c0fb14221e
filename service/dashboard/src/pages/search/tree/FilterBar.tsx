import { useMemo, useState } from "react";
import { Choice } from "../../../app/ListTools";
import { Button, Checkbox, format, TextInput } from "../../../design";
import styles from "./FilterBar.module.css";
import { choicesOf, isFiltering, PARAMETERS, type Shown, STANDINGS, type TreeFilters } from "./filters";
import type { SearchTree } from "./rows";

interface FilterBarProps {
  tree: SearchTree;
  shown: Shown;
  filters: TreeFilters;
  set: (changes: Record<string, string | null>, replace?: boolean) => void;
}

const asOptions = (names: readonly string[]) => new Map(names.map((name) => [name, format.words(name)]));

interface RatioInputProps {
  ratio: number | null;
  onChange: (text: string | null) => void;
}

/** Shows what is typed while it is typed in: the address follows later, and on the way to 0.85 may say 0.8. */
function RatioInput({ ratio, onChange }: RatioInputProps) {
  const [draft, setDraft] = useState<string | null>(null);
  return (
    <TextInput
      aria-label="Faster than, as a ratio"
      type="number"
      inputMode="decimal"
      min={0}
      step={0.1}
      placeholder="1.0"
      value={draft ?? ratio ?? ""}
      onChange={(event) => {
        setDraft(event.currentTarget.value);
        onChange(event.currentTarget.value || null);
      }}
      onBlur={() => setDraft(null)}
    />
  );
}

/** Leaves out of the tree what is not looked for, and says how much is left. */
export function FilterBar({ tree, shown, filters, set }: FilterBarProps) {
  const { techniques, rounds } = useMemo(() => choicesOf(tree), [tree]);
  const total = Math.max(0, tree.rows.size - 1);
  const filtering = isFiltering(filters);
  return (
    <search aria-label="Filters of the tree" className={styles.bar}>
      <Choice
        label="Verdict"
        all="Any verdict"
        options={STANDINGS}
        value={filters.standing}
        onChange={(standing) => set({ standing })}
      />
      <Choice
        label="Technique"
        all="Any technique"
        options={techniques}
        names={asOptions(techniques)}
        value={filters.technique}
        onChange={(technique) => set({ technique })}
      />
      <Choice
        label="Round"
        all="Any round"
        options={rounds.map(String)}
        names={new Map(rounds.map((round) => [String(round), `Round ${round}`]))}
        value={filters.round === null ? null : String(filters.round)}
        onChange={(round) => set({ round })}
      />
      <span className={styles.faster}>
        <span aria-hidden="true">Faster than</span>
        <RatioInput ratio={filters.fasterThan} onChange={(faster) => set({ faster }, true)} />
        <span aria-hidden="true">x</span>
      </span>
      {(shown.folded > 0 || filters.duplicates) && (
        <>
          <Checkbox
            label="Show duplicates"
            checked={filters.duplicates}
            onChange={(event) => set({ duplicates: event.currentTarget.checked ? "show" : null })}
          />
          {shown.folded > 0 && <span>{format.count(shown.folded)} folded</span>}
        </>
      )}
      {filtering && (
        <>
          <span role="status">
            {format.count(shown.matching)} of {format.count(total)} nodes
          </span>
          <Button
            kind="quiet"
            onClick={() =>
              set(
                Object.fromEntries(
                  PARAMETERS.filter((one) => one !== "duplicates").map((one) => [one, null]),
                ),
              )
            }
          >
            Show all
          </Button>
        </>
      )}
    </search>
  );
}
