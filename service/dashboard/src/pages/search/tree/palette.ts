/** The page's colours and letters as a canvas takes them. */

import { onThemeChange, resolveColor } from "../../../design";

const TOKENS = [
  "--surface",
  "--raised",
  "--border",
  "--border-strong",
  "--text",
  "--text-2",
  "--accent",
  "--accent-soft",
  "--focus",
  "--ok",
  "--bad",
  "--warn",
  "--wait",
  "--dup",
  "--slower",
  "--fast-1",
  "--fast-2",
  "--fast-3",
] as const;

type ColorToken = (typeof TOKENS)[number];

export interface Palette {
  color: (token: string) => string;
  title: string;
  small: string;
  bold: string;
  /** The height of a line of `title`. */
  line: number;
}

/** Read at `host`, whose theme it is; read it again when the theme changes. */
export function readPalette(host: Element): Palette {
  const colors = new Map<string, string>(
    TOKENS.map((token: ColorToken) => [token, resolveColor(token, host)]),
  );
  const { fontFamily } = getComputedStyle(host);
  const text = fontPixels("--t2", host);
  const small = fontPixels("--t1", host);
  return {
    color: (token) => colors.get(token) ?? "currentColor",
    title: `${text}px ${fontFamily}`,
    bold: `600 ${text}px ${fontFamily}`,
    small: `${small}px ${fontFamily}`,
    line: text * 1.3,
  };
}

let shared: Palette | null = null;
let told = false;

/** The page's own palette, read once for each theme: for the many small signs beside text. */
export function pagePalette(): Palette {
  if (!told) {
    told = true;
    onThemeChange(() => {
      shared = null;
    });
  }
  shared ??= readPalette(document.documentElement);
  return shared;
}

function fontPixels(token: `--${string}`, host: Element): number {
  const probe = document.createElement("span");
  probe.style.fontSize = `var(${token})`;
  host.append(probe);
  const pixels = Number.parseFloat(getComputedStyle(probe).fontSize);
  probe.remove();
  return Number.isFinite(pixels) ? pixels : 12;
}
