/** Wheel, drag and pinch on an element, as pan, zoom, press and hover. */

import type { Point } from "./camera";

interface GestureHandlers {
  pan: (dx: number, dy: number) => void;
  zoom: (factor: number, at: Point) => void;
  /** A press without a drag. */
  press: (at: Point) => void;
  doublePress: (at: Point) => void;
  /** The pointer's place, or null where it is gone or drags. */
  hover: (at: Point | null) => void;
}

const DRAG = 4;
const LINE = 16;
const WHEEL = 0.0016;
const PINCH_WHEEL = 0.01;

/** Listens until the function that it gives is called. */
export function listen(element: HTMLElement, on: GestureHandlers): () => void {
  const pointers = new Map<number, Point>();
  let start: Point | null = null;
  let dragging = false;

  const place = (event: MouseEvent): Point => {
    const box = element.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };

  function down(event: PointerEvent) {
    if (event.button !== 0) return;
    pointers.set(event.pointerId, place(event));
    if (pointers.size === 1) {
      start = place(event);
      dragging = false;
    } else dragging = true;
  }

  function motion(event: PointerEvent) {
    const at = place(event);
    const last = pointers.get(event.pointerId);
    if (!last) {
      if (pointers.size === 0) on.hover(at);
      return;
    }
    if (!dragging && start && Math.hypot(at.x - start.x, at.y - start.y) < DRAG) return;
    if (!dragging) {
      dragging = true;
      on.hover(null);
      // Only a drag is captured: a press stays the element's own.
      element.setPointerCapture(event.pointerId);
    }
    const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
    if (other) pinch(last, at, other);
    else on.pan(at.x - last.x, at.y - last.y);
    pointers.set(event.pointerId, at);
  }

  function pinch(last: Point, at: Point, other: Point) {
    const before = Math.hypot(last.x - other.x, last.y - other.y);
    const after = Math.hypot(at.x - other.x, at.y - other.y);
    on.pan((at.x - last.x) / 2, (at.y - last.y) / 2);
    if (before > 0 && after > 0)
      on.zoom(after / before, { x: (at.x + other.x) / 2, y: (at.y + other.y) / 2 });
  }

  function up(event: PointerEvent) {
    if (!pointers.delete(event.pointerId)) return;
    if (pointers.size > 0) return;
    if (!dragging && event.type === "pointerup") on.press(place(event));
    start = null;
    dragging = false;
  }

  function wheel(event: WheelEvent) {
    event.preventDefault();
    const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? LINE : 1;
    // A pinch on a touchpad comes as a wheel with Control.
    const speed = event.ctrlKey ? PINCH_WHEEL : WHEEL;
    if (event.shiftKey && !event.ctrlKey) on.pan(-(event.deltaX || event.deltaY) * unit, 0);
    else {
      if (event.deltaX !== 0 && !event.ctrlKey) on.pan(-event.deltaX * unit, 0);
      const delta = Math.max(-240, Math.min(240, event.deltaY * unit));
      if (delta !== 0) on.zoom(Math.exp(-delta * speed), place(event));
    }
    on.hover(place(event));
  }

  const leave = () => on.hover(null);
  const twice = (event: MouseEvent) => on.doublePress(place(event));
  element.addEventListener("pointerdown", down);
  element.addEventListener("pointermove", motion);
  element.addEventListener("pointerup", up);
  element.addEventListener("pointercancel", up);
  element.addEventListener("pointerleave", leave);
  element.addEventListener("dblclick", twice);
  element.addEventListener("wheel", wheel, { passive: false });
  return () => {
    element.removeEventListener("pointerdown", down);
    element.removeEventListener("pointermove", motion);
    element.removeEventListener("pointerup", up);
    element.removeEventListener("pointercancel", up);
    element.removeEventListener("pointerleave", leave);
    element.removeEventListener("dblclick", twice);
    element.removeEventListener("wheel", wheel);
  };
}
