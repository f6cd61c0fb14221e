import type { Ref } from "react";
import { IconButton, TextInput } from "../../../design";
import styles from "./Finder.module.css";
import { Icon } from "./Icon";

interface FinderProps {
  ref: Ref<HTMLInputElement>;
  query: string;
  /** How many nodes match, and which of them is at hand (-1: none). */
  found: number;
  at: number;
  onQuery: (query: string) => void;
  onStep: (by: 1 | -1) => void;
  /** Escape: back to the tree. */
  onLeave: () => void;
}

/** Finds nodes as one types; Enter goes to the next, Shift+Enter to the one before. */
export function Finder({ ref, query, found, at, onQuery, onStep, onLeave }: FinderProps) {
  return (
    <search className={styles.finder}>
      <TextInput
        ref={ref}
        type="search"
        aria-label="Find nodes by title, technique, number or verdict"
        placeholder="Find: title, technique, #12, accepted"
        value={query}
        onChange={(event) => onQuery(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter") onStep(event.shiftKey ? -1 : 1);
          else if (event.key === "Escape") {
            onQuery("");
            onLeave();
          } else return;
          event.preventDefault();
        }}
      />
      <span role="status" className={styles.count}>
        {query.trim() !== "" && (found === 0 ? "none" : at < 0 ? String(found) : `${at + 1} of ${found}`)}
      </span>
      <IconButton
        label="Previous match (Shift+N)"
        icon={<Icon name="up" />}
        disabled={found === 0}
        onClick={() => onStep(-1)}
      />
      <IconButton
        label="Next match (N)"
        icon={<Icon name="down" />}
        disabled={found === 0}
        onClick={() => onStep(1)}
      />
    </search>
  );
}
