/** Text on a canvas: escaped as everywhere else, cut to the room there is, measured once. */

import { visible } from "../../../design";

const MOST = 20_000;

/** A text as far as it fits, and its width. */
export interface Cut {
  text: string;
  width: number;
}

export class Texts {
  private readonly escaped = new Map<string, string>();
  private readonly cuts = new Map<string, Cut>();

  constructor(private readonly measure: (text: string, font: string) => number) {}

  /** The text as far as it fits, with an ellipsis where it was cut, and its width. */
  cut(text: string, font: string, room: number): Cut {
    // Room in steps: while a column widens smoothly the same cut serves for a few frames.
    const step = Math.floor(room / 8) * 8;
    const key = `${font}|${step}|${text}`;
    let found = this.cuts.get(key);
    if (!found) {
      found = this.fitted(this.shown(text), font, step);
      if (this.cuts.size > MOST) this.cuts.clear();
      this.cuts.set(key, found);
    }
    return found;
  }

  private shown(text: string): string {
    let found = this.escaped.get(text);
    if (found === undefined) {
      // A title is one line: what breaks lines is a space here.
      found = visible(text.replace(/\s+/g, " ").trim());
      if (this.escaped.size > MOST) this.escaped.clear();
      this.escaped.set(text, found);
    }
    return found;
  }

  private fitted(text: string, font: string, room: number): Cut {
    const whole = this.measure(text, font);
    if (whole <= room) return { text, width: whole };
    const letters = Array.from(text);
    let low = 0;
    let high = letters.length;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.measure(`${letters.slice(0, middle).join("")}…`, font) <= room) low = middle;
      else high = middle - 1;
    }
    if (low === 0) return { text: "", width: 0 };
    const cut = `${letters.slice(0, low).join("").trimEnd()}…`;
    return { text: cut, width: this.measure(cut, font) };
  }
}
