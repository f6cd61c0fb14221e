import { type RefObject, useEffect, useRef, useState } from "react";
import { onThemeChange } from "../../../design";
import type { Point } from "./camera";
import { listen } from "./gestures";
import { recall, remember } from "./memory";
import { Stage } from "./stage";

const MAP_NARROW = 560;

interface Pointing {
  open: (id: string) => void;
  toggle: (id: string) => void;
  hover: (id: string | null) => void;
}

interface StageRefs {
  host: RefObject<HTMLDivElement | null>;
  /** What takes pointers and keys. */
  front: RefObject<HTMLDivElement | null>;
  tree: RefObject<HTMLCanvasElement | null>;
  marks: RefObject<HTMLCanvasElement | null>;
  map: RefObject<HTMLCanvasElement | null>;
  frame: RefObject<HTMLCanvasElement | null>;
}

/**
 * A stage on the canvases that `refs` name, as long as the component stands: its size, its theme, its pointers, and the
 * view that it had before. `whole` says whether all of the tree is in view.
 */
export function useStage(searchId: string, pointing: Pointing, collapsed: ReadonlySet<string>) {
  const refs: StageRefs = {
    host: useRef(null),
    front: useRef(null),
    tree: useRef(null),
    marks: useRef(null),
    map: useRef(null),
    frame: useRef(null),
  };
  const [held] = useState(refs);
  const [stage, setStage] = useState<Stage | null>(null);
  const [whole, setWhole] = useState(true);
  const latest = useRef({ pointing, collapsed });
  useEffect(() => {
    latest.current = { pointing, collapsed };
  });

  useEffect(() => {
    const [host, front] = [held.host.current, held.front.current];
    const [tree, marks, map, frame] = [held.tree, held.marks, held.map, held.frame].map((ref) => ref.current);
    if (!host || !front || !tree || !marks || !map || !frame) return;
    const calm = matchMedia("(prefers-reduced-motion: reduce)");
    const made = new Stage({ tree, marks, map, frame }, () => calm.matches, setWhole);
    const { view } = recall(searchId);
    if (view) made.restore(view);

    const measure = () => {
      const size = { width: host.clientWidth, height: host.clientHeight };
      const mapSize = { width: map.clientWidth, height: map.clientHeight };
      made.setSize(size, size.width < MAP_NARROW ? { width: 0, height: 0 } : mapSize, devicePixelRatio || 1);
    };
    const observer = new ResizeObserver(measure);
    observer.observe(host);
    const undo = [
      () => observer.disconnect(),
      onRatioChange(measure),
      onThemeChange(() => made.setTheme()),
      listen(
        marks,
        gesturesOf(made, () => latest.current.pointing),
      ),
      dragMap(frame, (at) => made.panFromMap(at)),
    ];
    const keep = () => remember(searchId, { view: made.view(), collapsed: [...latest.current.collapsed] });
    addEventListener("pagehide", keep);
    setStage(made);
    return () => {
      keep();
      removeEventListener("pagehide", keep);
      for (const end of undo) end();
      made.stop();
      setStage(null);
    };
  }, [searchId, held]);

  return { refs: held, stage, whole };
}

function gesturesOf(stage: Stage, pointing: () => Pointing) {
  return {
    pan: (dx: number, dy: number) => stage.pan(dx, dy),
    zoom: (factor: number, at: Point) => stage.zoom(factor, at),
    press: (at: Point) => {
      const hit = stage.hit(at);
      if (!hit) return;
      if (hit.badge) pointing().toggle(hit.place.id);
      else pointing().open(hit.place.id);
    },
    doublePress: (at: Point) => {
      const hit = stage.hit(at);
      if (hit && !hit.badge) pointing().toggle(hit.place.id);
      if (!hit) stage.zoomSmoothly(1.6);
    },
    hover: (at: Point | null) => pointing().hover(at && (stage.hit(at)?.place.id ?? null)),
  };
}

/** The middle of the view follows the pointer on the map. */
function dragMap(frame: HTMLCanvasElement, to: (at: Point) => void): () => void {
  const follow = (event: PointerEvent) => {
    const box = frame.getBoundingClientRect();
    to({ x: event.clientX - box.left, y: event.clientY - box.top });
  };
  const down = (event: PointerEvent) => {
    if (event.button !== 0) return;
    frame.setPointerCapture(event.pointerId);
    follow(event);
  };
  const motion = (event: PointerEvent) => frame.hasPointerCapture(event.pointerId) && follow(event);
  frame.addEventListener("pointerdown", down);
  frame.addEventListener("pointermove", motion);
  return () => {
    frame.removeEventListener("pointerdown", down);
    frame.removeEventListener("pointermove", motion);
  };
}

/** Calls `tell` when the pixels of the screen become finer or coarser: another screen, another zoom of the page. */
function onRatioChange(tell: () => void): () => void {
  let media: MediaQueryList | undefined;
  const changed = () => {
    watch();
    tell();
  };
  function watch() {
    media?.removeEventListener("change", changed);
    media = matchMedia(`(resolution: ${devicePixelRatio}dppx)`);
    media.addEventListener("change", changed);
  }
  watch();
  return () => media?.removeEventListener("change", changed);
}
