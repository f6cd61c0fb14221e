import {
  type CSSProperties,
  type KeyboardEvent,
  useEffect,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from "react";
import { Badge, Button, classes, format, Untrusted, visible } from "../../../design";
import { Icon } from "../tree/Icon";
import { colorOf, isSlower, kindOf, toneOfRow } from "../tree/kinds";
import { GlyphSign } from "../tree/Legend";
import { hiders } from "../tree/layout";
import type { SearchTree, TreeRow } from "../tree/rows";
import { sentence, standing, summary, titleOf } from "../tree/words";
import { type Line, linesOf, motionOf, windowOf } from "./lines";
import styles from "./NodeList.module.css";

interface NodeListProps {
  tree: SearchTree;
  selected: string | null;
  onOpen: (id: string) => void;
}

/** The height of a line in pixels, which the style sheet takes from here. */
const LINE = 36;

export function NodeList({ tree, selected, onOpen }: NodeListProps) {
  const [closed, setClosed] = useState<ReadonlySet<string>>(new Set());
  const [active, setActive] = useState<string | null>(selected);
  const [seen, setSeen] = useState({ top: 0, height: 600 });
  const box = useRef<HTMLDivElement>(null);
  const takesFocus = useRef(false);
  const lines = useMemo(() => linesOf(tree, closed), [tree, closed]);
  const at = Math.max(
    0,
    lines.findIndex((line) => line.row.id === active),
  );
  const here = lines[at]?.row.id;

  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const look = () => setSeen({ top: element.scrollTop, height: element.clientHeight || 600 });
    const observer = new ResizeObserver(look);
    observer.observe(element);
    element.addEventListener("scroll", look, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", look);
    };
  }, []);

  // Where the address bar names a node, what hides it is opened and it is scrolled to.
  const shown = useRef<string | null>(null);
  useEffect(() => {
    if (selected === null || !tree.rows.has(selected) || shown.current === selected) return;
    shown.current = selected;
    const hiding = hiders(tree.rows, closed, selected);
    if (hiding.length > 0) setClosed(new Set([...closed].filter((id) => !hiding.includes(id))));
    setActive(selected);
  }, [selected, tree, closed]);

  useLayoutEffect(() => {
    const element = box.current;
    if (!element || here === undefined) return;
    const top = at * LINE;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + LINE > element.scrollTop + element.clientHeight && element.clientHeight > 0)
      element.scrollTop = top + LINE - element.clientHeight;
  }, [here, at]);

  useLayoutEffect(() => {
    if (!takesFocus.current) return;
    takesFocus.current = false;
    box.current
      ?.querySelector<HTMLElement>('[role="treeitem"][tabindex="0"]')
      ?.focus({ preventScroll: true });
  });

  function go(to: number) {
    const line = lines[to];
    if (!line) return;
    takesFocus.current = true;
    setActive(line.row.id);
  }

  function set(id: string, open: boolean) {
    const next = new Set(closed);
    if (open) next.delete(id);
    else next.add(id);
    setClosed(next);
  }

  function onKeyDown(event: KeyboardEvent) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(seen.height / LINE) - 1);
    if ((event.key === "Enter" || event.key === " ") && here !== undefined) onOpen(here);
    else {
      const motion = motionOf(lines, at, event.key, page);
      if (!motion) return;
      if ("to" in motion) go(motion.to);
      else if ("open" in motion) set(motion.open, true);
      else set(motion.close, false);
    }
    event.preventDefault();
  }

  const label = useMemo(() => visible(summary(tree)), [tree]);
  const [first, last] = windowOf(lines.length, seen.top, seen.height, LINE);
  const drawn = lines.slice(first, last).map((line, offset) => ({ line, index: first + offset }));
  const current = lines[at];
  // The line that has the focus stays in the document when it is scrolled away.
  if (current && (at < first || at >= last)) drawn.push({ line: current, index: at });
  const parents = [...tree.children.keys()];
  return (
    <div className={styles.list}>
      <div className={styles.tools}>
        <Button kind="quiet" onClick={() => setClosed(new Set())} disabled={closed.size === 0}>
          Expand all
        </Button>
        <Button
          kind="quiet"
          onClick={() => setClosed(new Set(parents.filter((id) => id !== tree.rootId)))}
          disabled={parents.length < 2}
        >
          Collapse all
        </Button>
      </div>
      <div className={styles.head} aria-hidden="true">
        <span>Idea</span>
        <span className={styles.technique}>Technique</span>
        <span className={styles.verdict}>Verdict</span>
        <span className={styles.score}>Speed-up</span>
      </div>
      <div ref={box} className={styles.box}>
        <div
          role="tree"
          aria-label={label}
          className={styles.tree}
          style={{ height: lines.length * LINE, "--line-height": `${LINE}px` } as CSSProperties}
          onKeyDown={onKeyDown}
        >
          {drawn.map(({ line, index }) => (
            <Item
              key={line.row.id}
              line={line}
              index={index}
              tree={tree}
              active={index === at}
              selected={line.row.id === selected}
              onOpen={() => {
                setActive(line.row.id);
                onOpen(line.row.id);
              }}
              onToggle={() => set(line.row.id, !line.expanded)}
            />
          ))}
        </div>
      </div>
    </div>
  );
}

interface ItemProps {
  line: Line;
  index: number;
  tree: SearchTree;
  active: boolean;
  selected: boolean;
  onOpen: () => void;
  onToggle: () => void;
}

function Item({ line, index, tree, active, selected, onOpen, onToggle }: ItemProps) {
  const { row, level, expanded } = line;
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: the tree around it takes the keys
    <div
      role="treeitem"
      aria-level={level}
      aria-posinset={line.position}
      aria-setsize={line.siblings}
      aria-selected={selected}
      aria-label={visible(sentence(row, tree))}
      {...(expanded !== null && { "aria-expanded": expanded })}
      tabIndex={active ? 0 : -1}
      className={classes(
        styles.item,
        selected && styles.selected,
        tree.bestPath.includes(row.id) && styles.lit,
      )}
      style={{ top: index * LINE, "--level": level - 1 } as CSSProperties}
      onClick={onOpen}
    >
      <span className={styles.idea}>
        {expanded === null ? (
          <span className={styles.twist} />
        ) : (
          // biome-ignore lint/a11y/noStaticElementInteractions: for the pointer; arrow keys do the same
          // biome-ignore lint/a11y/useKeyWithClickEvents: arrow keys do the same
          <span
            className={styles.twist}
            onClick={(event) => {
              event.stopPropagation();
              onToggle();
            }}
          >
            <Icon name={expanded ? "down" : "right"} />
          </span>
        )}
        <GlyphSign kind={kindOf(row)} color={colorOf(row)} slower={isSlower(row)} />
        <span className={styles.number}>#{row.seq}</span>
        <span className={styles.title}>
          <Untrusted text={titleOf(row)} />
        </span>
        <Signs row={row} best={row.id === tree.bestId} />
      </span>
      <span className={styles.technique}>
        <Untrusted text={format.words(row.technique)} />
      </span>
      <span className={styles.verdict}>
        <Badge tone={toneOfRow(row)}>
          <Untrusted text={standing(row)} />
        </Badge>
      </span>
      <span className={styles.score}>
        {format.ratio(row.score)}
        {row.ci95 && (
          <span className={styles.interval}> [{row.ci95.map((end) => end.toFixed(2)).join(", ")}]</span>
        )}
      </span>
    </div>
  );
}

function Signs({ row, best }: { row: TreeRow; best: boolean }) {
  return (
    <>
      {best && <Badge tone="accent">best</Badge>}
      {row.mark && <Badge tone={row.mark === "banned" ? "bad" : "accent"}>{row.mark}</Badge>}
    </>
  );
}
