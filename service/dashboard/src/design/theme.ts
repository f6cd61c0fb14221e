/** Light, dark, or as the system has it; kept in localStorage and set as `data-theme` on <html>. */

export type Theme = "system" | "light" | "dark";

const KEY = "warpsmith-theme";
const listeners = new Set<() => void>();

export function readTheme(): Theme {
  try {
    const stored = localStorage.getItem(KEY);
    return stored === "light" || stored === "dark" ? stored : "system";
  } catch {
    return "system"; // storage is refused in some private windows
  }
}

export function setTheme(theme: Theme): void {
  try {
    if (theme === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, theme);
  } catch {
    // The choice then lasts for this page alone.
  }
  applyTheme(theme);
}

export function applyTheme(theme: Theme): void {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  for (const tell of listeners) tell();
}

/** Calls `tell` whenever colours change, by the switch or by the system: a canvas has to be drawn again. */
export function onThemeChange(tell: () => void): () => void {
  const media = matchMedia("(prefers-color-scheme: dark)");
  listeners.add(tell);
  media.addEventListener("change", tell);
  return () => {
    listeners.delete(tell);
    media.removeEventListener("change", tell);
  };
}

/** A colour token such as `--ok` as an rgb() that a canvas takes: custom properties keep `light-dark()` unresolved. */
export function resolveColor(token: `--${string}`, at: Element = document.documentElement): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${token})`;
  at.append(probe);
  const color = getComputedStyle(probe).color;
  probe.remove();
  return color;
}
