import { type KeyboardEvent, type PointerEvent, type ReactNode, useMemo, useRef, useState } from "react";
import { usePlot } from "./context";
import { boxOf, nearest, readingOrder, type Target } from "./nearest";
import styles from "./Plot.module.css";

const DRAG_PX = 6;

interface OverlayProps<T extends Target> {
  label: string;
  left: number;
  top: number;
  targets: readonly T[];
  tip?: ((target: T) => ReactNode) | undefined;
  onSelect?: ((target: T) => void) | undefined;
  onBrush?: ((from: number, to: number) => void) | undefined;
}

/** Takes the pointer and the keys over a plot: shows what is pointed at, opens it, or takes a span of x. */
export function Overlay<T extends Target>({
  label,
  left,
  top,
  targets,
  tip,
  onSelect,
  onBrush,
}: OverlayProps<T>) {
  const area = usePlot();
  const [key, setKey] = useState<string | null>(null);
  const [drag, setDrag] = useState<readonly [number, number] | null>(null);
  const pressed = useRef<number | null>(null);
  const ordered = useMemo(() => readingOrder(targets, area), [targets, area]);
  const shown = key === null ? undefined : targets.find((target) => target.key === key);

  function place(event: PointerEvent): readonly [number, number] {
    const box = event.currentTarget.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  function onPointerMove(event: PointerEvent) {
    const [px, py] = place(event);
    if (onBrush && pressed.current !== null && Math.abs(px - pressed.current) > DRAG_PX) {
      setDrag([pressed.current, px]);
      setKey(null);
      return;
    }
    setKey(nearest(targets, area, px, py)?.key ?? null);
  }

  function onPointerUp(event: PointerEvent) {
    const [px, py] = place(event);
    const from = pressed.current;
    pressed.current = null;
    if (drag && from !== null) {
      setDrag(null);
      onBrush?.(area.x.invert(Math.min(from, px)), area.x.invert(Math.max(from, px)));
      return;
    }
    const found = nearest(targets, area, px, py);
    setKey(found?.key ?? null);
    if (found && from !== null) onSelect?.(found);
  }

  function onKeyDown(event: KeyboardEvent) {
    const at = ordered.findIndex((target) => target.key === key);
    const last = ordered.length - 1;
    const to = { ArrowRight: Math.min(last, at + 1), ArrowLeft: Math.max(0, at - 1), Home: 0, End: last }[
      event.key
    ];
    if (to !== undefined && ordered.length) {
      event.preventDefault();
      setKey(ordered[to]?.key ?? null);
    } else if (event.key === "Enter" && shown) onSelect?.(shown);
    else if (event.key === "Escape") setKey(null);
  }

  return (
    <div
      role="application"
      aria-label={`${label}. Arrow keys visit what is drawn${onSelect ? ", Enter opens it" : ""}.`}
      // biome-ignore lint/a11y/noNoninteractiveTabindex: it takes the arrow keys
      tabIndex={0}
      className={styles.overlay}
      data-selects={(onSelect && shown) || undefined}
      data-brushes={onBrush ? true : undefined}
      style={{ left, top, width: area.width, height: area.height }}
      onPointerMove={onPointerMove}
      onPointerDown={(event) => {
        pressed.current = place(event)[0];
        event.currentTarget.setPointerCapture?.(event.pointerId);
      }}
      onPointerUp={onPointerUp}
      onPointerCancel={() => {
        pressed.current = null;
        setDrag(null);
      }}
      onPointerLeave={() => pressed.current === null && setKey(null)}
      onBlur={() => setKey(null)}
      onKeyDown={onKeyDown}
    >
      {drag && (
        <div
          className={styles.brush}
          style={{ left: Math.min(...drag), width: Math.abs(drag[1] - drag[0]) }}
        />
      )}
      <div aria-live="polite">
        {shown && <Tip box={boxOf(shown, area)} width={area.width} content={tip?.(shown)} />}
      </div>
    </div>
  );
}

function Tip({
  box,
  width,
  content,
}: {
  box: { left: number; right: number; top: number; bottom: number };
  width: number;
  content: ReactNode;
}) {
  const middle = (Math.max(0, box.left) + Math.min(width, box.right)) / 2;
  const side = middle > width / 2 ? { right: width - middle + 10 } : { left: middle + 10 };
  return (
    <>
      <span
        className={styles.halo}
        style={{
          left: box.left - 4,
          top: box.top - 4,
          width: box.right - box.left + 8,
          height: box.bottom - box.top + 8,
        }}
      />
      {content && (
        <div className={styles.tip} style={{ ...side, top: Math.max(0, box.top - 8) }}>
          {content}
        </div>
      )}
    </>
  );
}
