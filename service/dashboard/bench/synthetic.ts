/** A tree like those of long searches, of any size: the same one for the same seed. */

import type { RowDocument, TreePage } from "../src/pages/search/tree/rows";

const TECHNIQUES = [
  "memory_access",
  "vectorisation",
  "loop_tiling",
  "fusion",
  "parallel_split",
  "prefetch",
  "unrolling",
];
const WORDS = [
  "Tile",
  "Fuse",
  "Vectorise",
  "Split",
  "Unroll",
  "Prefetch",
  "rows",
  "columns",
  "loads",
  "stores",
  "blocks",
];
const DEEPEST = 9;

function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

export class SyntheticSearch {
  readonly rows: RowDocument[] = [];
  private readonly depths: number[] = [];
  private readonly parents: number[] = [];
  private readonly next: () => number;
  private best = 0;

  constructor(seed = 7) {
    this.next = random(seed);
    this.rows.push(this.row(0, null, 0));
    this.depths.push(0);
    this.parents.push(0);
  }

  /** Adds nodes below what was accepted so far; gives the new rows. */
  grow(count: number): RowDocument[] {
    const added: RowDocument[] = [];
    for (let at = 0; at < count; at++) {
      const seq = this.rows.length;
      const parent = this.parents[Math.floor(this.next() ** 0.7 * this.parents.length)] ?? 0;
      const depth = (this.depths[parent] ?? 0) + 1;
      const row = this.row(seq, this.rows[parent]?.id ?? null, depth);
      this.rows.push(row);
      this.depths.push(depth);
      if (row.verdict === "accepted" && depth < DEEPEST) this.parents.push(seq);
      if ((row.score ?? 0) > (this.rows[this.best]?.score ?? 0)) this.best = seq;
      added.push(row);
    }
    return added;
  }

  /** Gives some nodes another verdict, as a judge does. */
  change(count: number): RowDocument[] {
    return Array.from({ length: count }, () => {
      const seq = 1 + Math.floor(this.next() * (this.rows.length - 1));
      const old = this.rows[seq] as RowDocument;
      const row = {
        ...old,
        updated_at: old.updated_at + 1,
        verification: this.next() < 0.5 ? "open" : "passed",
      };
      this.rows[seq] = row;
      return row;
    });
  }

  page(rows: RowDocument[]): TreePage {
    const best = this.rows[this.best] as RowDocument;
    const path: string[] = [];
    const parentOf = (row: RowDocument) =>
      row.parent_id ? this.rows[Number(row.parent_id.slice(3))] : undefined;
    for (let at: RowDocument | undefined = best; at; at = parentOf(at)) path.unshift(at.id);
    return { state: "running", as_of: 0, best_node_id: best.id, best_path: path, rows, next_after_seq: null };
  }

  private row(seq: number, parent: string | null, depth: number): RowDocument {
    const luck = this.next();
    const pick = (words: string[]) => words[Math.floor(this.next() * words.length)] as string;
    const common = {
      id: `nd_${seq}`,
      seq,
      round: depth,
      origin: "model",
      updated_at: seq,
      verification: "none",
      ...(parent !== null && { parent_id: parent, technique: pick(TECHNIQUES) }),
      ...(parent !== null && { title: `${pick(WORDS)} ${pick(WORDS)} and ${pick(WORDS)} ${seq}` }),
    };
    if (parent === null) return { ...common, state: "judged", verdict: "accepted" };
    if (luck < 0.4) {
      const score = 0.5 + this.next() * 0.5 * depth ** 0.7;
      return { ...common, state: "judged", verdict: "accepted", score, ci95: [score * 0.97, score * 1.03] };
    }
    if (luck < 0.85) return { ...common, state: "judged", verdict: "rejected", gate: "screen" };
    if (luck < 0.9) return { ...common, state: "judged", verdict: "ambiguous", score: 1 };
    if (luck < 0.93)
      return { ...common, state: "judged", verdict: "quarantined", gate: "physics", score: 12 };
    return { ...common, state: luck < 0.97 ? "closed" : luck < 0.985 ? "judging" : "planned" };
  }
}
