import { type KeyboardEvent, useCallback, useEffect, useMemo, useRef, useState } from "react";
import { classes, IconButton, Untrusted, visible } from "../../../design";
import { Finder } from "./Finder";
import { findNodes, neighbour } from "./find";
import { HelpDialog } from "./HelpDialog";
import { Icon } from "./Icon";
import { commandOf, ZOOM } from "./keys";
import { Legend } from "./Legend";
import { hiders } from "./layout";
import { recall } from "./memory";
import { type Direction, step } from "./moves";
import type { SearchTree } from "./rows";
import { Tooltip } from "./Tooltip";
import styles from "./TreeView.module.css";
import { useStage } from "./useStage";
import { sentence, summary } from "./words";

interface TreeViewProps {
  searchId: string;
  tree: SearchTree;
  /** The node that is open beside the tree. */
  selected: string | null;
  onOpen: (id: string) => void;
  /** Whether the tree fills the window. */
  filled: boolean;
  onFill: (filled: boolean) => void;
}

const NONE: ReadonlySet<string> = new Set();

export function TreeView({ searchId, tree, selected, onOpen, filled, onFill }: TreeViewProps) {
  const [collapsed, setCollapsed] = useState<ReadonlySet<string>>(() => new Set(recall(searchId).collapsed));
  const [cursor, setCursor] = useState<string | null>(selected);
  const [focused, setFocused] = useState(false);
  const [hovered, setHovered] = useState<string | null>(null);
  const [query, setQuery] = useState("");
  const [helps, setHelps] = useState(false);
  const [spoken, setSpoken] = useState("");
  const finder = useRef<HTMLInputElement>(null);

  const toggle = useCallback((id: string) => {
    setCollapsed((old) => {
      const next = new Set(old);
      if (!next.delete(id)) next.add(id);
      return next;
    });
  }, []);
  const open = useCallback(
    (id: string) => {
      setCursor(id);
      onOpen(id);
    },
    [onOpen],
  );
  const { refs, stage, whole } = useStage(searchId, { open, toggle, hover: setHovered }, collapsed);

  const found = useMemo(() => findNodes(tree, query), [tree, query]);
  const label = useMemo(() => visible(summary(tree)), [tree]);
  const matches = useMemo(() => (found.length > 0 ? new Set(found) : NONE), [found]);
  const here = cursor !== null && tree.rows.has(cursor) ? cursor : tree.rootId;

  useEffect(() => stage?.setTree(tree, collapsed), [stage, tree, collapsed]);
  useEffect(
    () => stage?.setMarks({ selected, cursor: here, focused, hovered, matches }),
    [stage, selected, here, focused, hovered, matches],
  );

  /** Brings a node into view, opening what hides it. */
  const goTo = useCallback(
    (id: string, nearer: boolean) => {
      const hiding = hiders(tree.rows, collapsed, id);
      if (hiding.length > 0) setCollapsed(new Set([...collapsed].filter((one) => !hiding.includes(one))));
      setCursor(id);
      stage?.goTo(id, nearer);
    },
    [stage, tree, collapsed],
  );

  // The address bar may name another node at any time: at the start, by Back, by the node's own links.
  const shown = useRef<string | null>(null);
  useEffect(() => {
    if (!stage || selected === null || !tree.rows.has(selected) || shown.current === selected) return;
    const first = shown.current === null;
    shown.current = selected;
    goTo(selected, first && recall(searchId).view === null);
  }, [stage, selected, tree, goTo, searchId]);

  function move(id: string | null, nearer = false) {
    const row = id === null ? undefined : tree.rows.get(id);
    if (!row) return;
    goTo(row.id, nearer);
    setSpoken(sentence(row, tree));
  }

  function next(by: 1 | -1) {
    move(neighbour(found, here, by), true);
  }

  function onKeyDown(event: KeyboardEvent) {
    const command = commandOf(event);
    if (!command || !stage) return;
    event.preventDefault();
    switch (command.does) {
      case "walk":
        if (here) walkTo(here, command.direction);
        break;
      case "pan":
        stage.pan(command.dx, command.dy);
        break;
      case "zoom":
        stage.zoomSmoothly(command.factor);
        break;
      case "match":
        next(command.by);
        break;
      case "open":
        if (here) open(here);
        break;
      case "fold":
        if (here) fold(here);
        break;
      case "root":
        move(tree.rootId);
        break;
      case "best":
        move(tree.bestId, true);
        break;
      case "fit":
        stage.fit();
        break;
      case "fill":
        onFill(!filled);
        break;
      case "leave":
        onFill(false);
        break;
      case "find":
        finder.current?.select();
        break;
      case "help":
        setHelps(true);
        break;
    }
  }

  function walkTo(from: string, direction: Direction) {
    if (direction === "child" && collapsed.has(from)) toggle(from);
    else if (stage) move(step(stage.shape(), from, direction));
  }

  function fold(id: string) {
    const row = tree.rows.get(id);
    if (!row || !tree.children.get(id)?.length) return;
    toggle(id);
    setSpoken(`${sentence(row, tree)}, ${collapsed.has(id) ? "expanded" : "collapsed"}`);
  }

  const canFold = here !== null && (tree.children.get(here)?.length ?? 0) > 0;
  const isFolded = here !== null && collapsed.has(here);
  const spot = hovered === null ? null : (stage?.spot(hovered) ?? null);
  const hoveredRow = hovered === null ? undefined : tree.rows.get(hovered);
  return (
    <div className={styles.view}>
      <div className={styles.bar}>
        <Finder
          ref={finder}
          query={query}
          found={found.length}
          at={here === null ? -1 : found.indexOf(here)}
          onQuery={setQuery}
          onStep={next}
          onLeave={() => refs.front.current?.focus()}
        />
        <div className={styles.tools}>
          <IconButton
            label="Zoom out (-)"
            icon={<Icon name="minus" />}
            onClick={() => stage?.zoomSmoothly(1 / ZOOM)}
          />
          <IconButton
            label="Zoom in (+)"
            icon={<Icon name="plus" />}
            onClick={() => stage?.zoomSmoothly(ZOOM)}
          />
          <IconButton
            label="Fit the whole tree (F)"
            icon={<Icon name="fit" />}
            onClick={() => stage?.fit()}
          />
          <IconButton
            label={filled ? "Back to the page (W)" : "Fill the window (W)"}
            icon={<Icon name="fill" />}
            aria-pressed={filled}
            onClick={() => onFill(!filled)}
          />
          <IconButton
            label="Go to the best (B)"
            icon={<Icon name="star" />}
            disabled={tree.bestId === null}
            onClick={() => move(tree.bestId, true)}
          />
          <IconButton
            label={isFolded ? "Expand below this node (Space)" : "Collapse below this node (Space)"}
            icon={<Icon name={isFolded ? "expand" : "collapse"} />}
            disabled={!canFold}
            onClick={() => here && fold(here)}
          />
          <IconButton label="Keys and signs (?)" icon={<Icon name="help" />} onClick={() => setHelps(true)} />
        </div>
      </div>
      <div ref={refs.host} className={styles.stage}>
        <div
          ref={refs.front}
          className={classes(styles.layer, styles.front, hovered !== null && styles.pointing)}
          role="application"
          aria-roledescription="tree drawing"
          aria-label={`${label}. Arrow keys move between nodes, Enter opens one, question mark tells all keys. The List tab has the same tree as text.`}
          // biome-ignore lint/a11y/noNoninteractiveTabindex: an application takes the keyboard
          tabIndex={0}
          onKeyDown={onKeyDown}
          onFocus={() => {
            setFocused(true);
            const row = here === null ? undefined : tree.rows.get(here);
            if (row) setSpoken(sentence(row, tree));
          }}
          onBlur={() => setFocused(false)}
        >
          <canvas ref={refs.tree} className={styles.layer} />
          <canvas ref={refs.marks} className={styles.layer} />
        </div>
        {hoveredRow && spot && (
          <Tooltip
            row={hoveredRow}
            spot={spot}
            best={hoveredRow.id === tree.bestId}
            host={refs.host.current}
          />
        )}
        <div className={classes(styles.map, whole && styles.away)}>
          <canvas ref={refs.map} className={styles.layer} />
          <canvas ref={refs.frame} className={styles.layer} />
        </div>
        <p aria-live="polite" className="visually-hidden">
          <Untrusted text={spoken} />
        </p>
      </div>
      <Legend />
      <HelpDialog open={helps} onClose={() => setHelps(false)} />
    </div>
  );
}
