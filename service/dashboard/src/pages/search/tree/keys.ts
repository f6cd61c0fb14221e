/** What a key means on the tree. Pure. */

import type { Direction } from "./moves";

type Command =
  | { does: "walk"; direction: Direction }
  | { does: "pan"; dx: number; dy: number }
  | { does: "zoom"; factor: number }
  | { does: "match"; by: 1 | -1 }
  | { does: "open" | "fold" | "root" | "best" | "fit" | "fill" | "leave" | "find" | "help" };

export const ZOOM = 1.4;
const PAN = 80;

const WALK: ReadonlyMap<string, Direction> = new Map([
  ["ArrowLeft", "parent"],
  ["ArrowRight", "child"],
  ["ArrowUp", "previous"],
  ["ArrowDown", "next"],
]);

const PANS: ReadonlyMap<string, readonly [number, number]> = new Map([
  ["ArrowLeft", [PAN, 0]],
  ["ArrowRight", [-PAN, 0]],
  ["ArrowUp", [0, PAN]],
  ["ArrowDown", [0, -PAN]],
]);

const PLAIN: ReadonlyMap<string, Command> = new Map([
  ["Enter", { does: "open" }],
  [" ", { does: "fold" }],
  ["Home", { does: "root" }],
  ["b", { does: "best" }],
  ["f", { does: "fit" }],
  ["w", { does: "fill" }],
  ["Escape", { does: "leave" }],
  ["/", { does: "find" }],
  ["?", { does: "help" }],
  ["+", { does: "zoom", factor: ZOOM }],
  ["=", { does: "zoom", factor: ZOOM }], // the same key without Shift
  ["-", { does: "zoom", factor: 1 / ZOOM }],
]);

interface Key {
  key: string;
  shiftKey: boolean;
  ctrlKey: boolean;
  metaKey: boolean;
  altKey: boolean;
}

export function commandOf({ key, shiftKey, ctrlKey, metaKey, altKey }: Key): Command | null {
  if (ctrlKey || metaKey || altKey) return null;
  const pan = shiftKey ? PANS.get(key) : undefined;
  if (pan) return { does: "pan", dx: pan[0], dy: pan[1] };
  const direction = WALK.get(key);
  if (direction) return { does: "walk", direction };
  const name = key.length === 1 ? key.toLowerCase() : key;
  if (name === "n") return { does: "match", by: shiftKey ? -1 : 1 };
  return PLAIN.get(name) ?? null;
}
