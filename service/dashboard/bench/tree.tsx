/**
 * The page of `bench/tree.mjs`: the tree as the dashboard draws it, with synthetic rows. It drives the tree by wheel events
 * on its canvas, one in each frame, and measures the frames. In `npm run dev` it stands at /bench/tree.html; ?nodes=1000
 * takes another size, ?phases=none shows the tree and measures nothing.
 */

import { createRoot } from "react-dom/client";
import "../src/design/tokens.css";
import "../src/design/base.css";
import { EMPTY_TREE, fold } from "../src/pages/search/tree/rows";
import { TreeView } from "../src/pages/search/tree/TreeView";
import { SyntheticSearch } from "./synthetic";

interface Measured {
  phase: string;
  nodes: number;
  fps: number;
  /** Milliseconds between frames: the median, the 95th percentile, the longest. */
  interval: { median: number; p95: number; max: number };
  /** Milliseconds from the start of a frame until its work on the main thread is done. */
  work: { median: number; p95: number; max: number };
}

const params = new URLSearchParams(location.search);
const NODES = Number(params.get("nodes") ?? 5000);
const SECONDS = Number(params.get("seconds") ?? 4);

const search = new SyntheticSearch();
search.grow(NODES - 1);
let tree = fold(EMPTY_TREE, search.page(search.rows));
sessionStorage.clear();
const root = createRoot(document.getElementById("root") as HTMLElement);
const show = () =>
  root.render(
    <TreeView
      searchId="sr_bench"
      tree={tree}
      selected={null}
      onOpen={() => undefined}
      filled={false}
      onFill={() => undefined}
    />,
  );
show();

function canvas(): HTMLElement {
  return document.querySelector<HTMLElement>('[role="application"]') as HTMLElement;
}

function wheel(init: WheelEventInit): void {
  const box = canvas().getBoundingClientRect();
  const at = { clientX: box.left + box.width / 2, clientY: box.top + box.height / 2 };
  canvas().dispatchEvent(new WheelEvent("wheel", { ...at, ...init, bubbles: true, cancelable: true }));
}

let arrived = 0;

const side = (frame: number) => (Math.floor(frame / 40) % 2 === 0 ? 1 : -1);
const pan = (frame: number) => wheel({ deltaX: 9 * side(frame) });
const zoom = (frame: number) => wheel({ deltaY: 60 * side(frame) });

/** Rows come as often as the page asks for them while a search runs: every quarter of a second. */
function arrive(frame: number, now = performance.now()): void {
  if (frame > 0 && now - arrived < 250) return;
  arrived = now;
  tree = fold(tree, search.page([...search.grow(12), ...search.change(50)]));
  show();
}

function both(frame: number): void {
  pan(frame);
  arrive(frame);
}

const PHASES: readonly [string, (frame: number) => void][] = [
  ["pan, whole tree in view", pan],
  ["pan while rows arrive, whole tree in view", both],
  ["zoom in and out", zoom],
  ["pan, titles readable", pan],
  ["pan while rows arrive, titles readable", both],
];

const nextFrame = () => new Promise<number>((resolve) => requestAnimationFrame(resolve));
const settled = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

function spread(values: number[]) {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (share: number) => Math.round((sorted[Math.floor(share * (sorted.length - 1))] ?? 0) * 10) / 10;
  return { median: at(0.5), p95: at(0.95), max: at(1) };
}

async function measure(phase: string, drive: (frame: number) => void): Promise<Measured> {
  const intervals: number[] = [];
  const work: number[] = [];
  const channel = new MessageChannel();
  let began = 0;
  channel.port1.onmessage = () => work.push(performance.now() - began);
  const start = await nextFrame();
  let last = start;
  for (let frame = 0; last - start < SECONDS * 1000; frame++) {
    drive(frame);
    const now = await nextFrame();
    began = performance.now();
    channel.port2.postMessage(null);
    intervals.push(now - last);
    last = now;
  }
  channel.port1.close();
  const fps = Math.round((intervals.length / (last - start)) * 10_000) / 10;
  return { phase, nodes: tree.rows.size, fps, interval: spread(intervals), work: spread(work) };
}

async function run(): Promise<void> {
  await settled(1500);
  const results: Measured[] = [];
  for (const [phase, drive] of PHASES) {
    if (phase === "pan, titles readable") for (let at = 0; at < 40; at++) wheel({ deltaY: -240 });
    await settled(600);
    results.push(await measure(phase, drive));
  }
  const view = { width: canvas().clientWidth, height: canvas().clientHeight, ratio: devicePixelRatio };
  await fetch("/bench/result", { method: "POST", body: JSON.stringify({ view, results }) });
}

if (params.get("phases") !== "none") void run();
