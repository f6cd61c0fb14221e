/** Numbers and times as the page shows them. Pure; a missing value is an en dash. */

export const NONE = "–";

/** Three significant digits, without an exponent or trailing zeros after the point beyond them. */
function significant(value: number, digits = 3): string {
  if (value === 0) return "0";
  const whole = Math.floor(Math.log10(Math.abs(value))) + 1;
  const places = Math.max(0, digits - whole);
  return value.toLocaleString("en-GB", { minimumFractionDigits: places, maximumFractionDigits: places });
}

const known = (value: number | null | undefined): value is number =>
  value !== null && value !== undefined && Number.isFinite(value);

/** A ratio: `1.59x`. */
export function ratio(value: number | null | undefined): string {
  return known(value) ? `${value < 100 ? value.toFixed(2) : significant(value)}x` : NONE;
}

/** A speed-up with its 95 % interval: `1.59x [1.25, 1.92]`. */
export function speedup(value: number | null | undefined, ci95?: readonly number[] | null): string {
  const [low, high] = ci95 ?? [];
  return known(value) && known(low) && known(high)
    ? `${ratio(value)} [${low.toFixed(2)}, ${high.toFixed(2)}]`
    : ratio(value);
}

/** Microseconds in the unit that reads best: `820 ns`, `12.3 µs`, `4.56 ms`, `1.20 s`. */
export function micros(us: number | null | undefined): string {
  if (!known(us)) return NONE;
  if (us === 0) return "0 µs";
  if (Math.abs(us) < 1) return `${significant(us * 1e3)} ns`;
  if (Math.abs(us) < 1e3) return `${significant(us)} µs`;
  if (Math.abs(us) < 1e6) return `${significant(us / 1e3)} ms`;
  return `${significant(us / 1e6)} s`;
}

/** A length of time in seconds, for people: `0.4 s`, `42 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`. */
export function duration(seconds: number | null | undefined): string {
  if (!known(seconds)) return NONE;
  if (seconds > 0 && seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const all = Math.round(seconds);
  const units: [number, string][] = [
    [Math.floor(all / 86400), "d"],
    [Math.floor(all / 3600) % 24, "h"],
    [Math.floor(all / 60) % 60, "min"],
    [all % 60, "s"],
  ];
  const first = units.findIndex(([count]) => count > 0);
  if (first < 0) return "0 s";
  return units
    .slice(first, first + 2)
    .filter(([count]) => count > 0)
    .map(([count, unit]) => `${count} ${unit}`)
    .join(" ");
}

/** Bytes in binary units: `512 B`, `48 KiB`, `1.5 MiB`. */
export function bytes(count: number | null | undefined): string {
  if (!known(count)) return NONE;
  let value = count;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (Math.abs(value) < 1024) return `${Number.isInteger(value) ? value : significant(value)} ${unit}`;
    value /= 1024;
  }
  return `${significant(value)} TiB`;
}

/** US dollars; an unknown price is not free: `$0.42`, `$0.0031`, `unknown`. */
export function money(usd: number | null | undefined): string {
  if (!known(usd)) return "unknown";
  if (usd === 0) return "$0.00";
  return usd < 0.01
    ? `$${Number(usd.toPrecision(2))}`
    : `$${usd.toLocaleString("en-GB", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
}

/** A share from 0 to 1: `87 %`, `4.2 %`, and `<0.1 %` where there is less than can be shown. */
export function percent(share: number | null | undefined): string {
  if (!known(share)) return NONE;
  const value = share * 100;
  if (value > 0 && value < 0.05) return "<0.1 %";
  return `${Math.abs(value) < 10 && value !== 0 ? value.toFixed(1) : Math.round(value)} %`;
}

/** A count with thousands separated: `1,048,576`. */
export function count(value: number | null | undefined): string {
  return known(value) ? value.toLocaleString("en-GB", { maximumFractionDigits: 0 }) : NONE;
}

/** A rate in SI units: `rate(3.35e12, "B/s")` is `3.35 TB/s`. */
export function rate(value: number | null | undefined, unit: string): string {
  if (!known(value)) return NONE;
  const step = value === 0 ? 0 : Math.min(5, Math.max(0, Math.floor(Math.log10(Math.abs(value)) / 3)));
  return `${significant(value / 10 ** (3 * step))} ${["", "k", "M", "G", "T", "P"][step]}${unit}`;
}

/** How long ago, from epoch seconds: `just now`, `5 min ago`, `3 d ago`; `in 5 min` for what is to come. */
export function ago(then: number, now: number): string {
  const seconds = now - then;
  if (Math.abs(seconds) < 5) return "just now";
  const text =
    Math.abs(seconds) < 60 ? `${Math.round(Math.abs(seconds))} s` : duration(coarse(Math.abs(seconds)));
  return seconds > 0 ? `${text} ago` : `in ${text}`;
}

function coarse(seconds: number): number {
  const unit = seconds < 3600 ? 60 : seconds < 86400 ? 3600 : 86400;
  return Math.floor(seconds / unit) * unit;
}

/** A moment in full, in UTC: `2026-03-01 14:05:09 UTC`. */
export function moment(epochSeconds: number): string {
  return `${new Date(epochSeconds * 1000).toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

/** A machine's word as a person's: `memory_access` is `memory access`. */
export function words(name: string | null | undefined): string {
  return name ? name.replaceAll("_", " ") : NONE;
}
