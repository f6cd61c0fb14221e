// Measures the frame rate of the tree, as it is built for use, in Chromium: `node bench/tree.mjs [nodes]`.
// CHROMIUM names the browser (`chromium` by default); GPU=1 lets it use a GPU, otherwise it draws in software.
// Exits with 1 where a phase stays below 30 frames a second.

import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { cpus, loadavg, tmpdir } from "node:os";
import { dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "vite";

const ENOUGH = 30;
const LONGEST_MS = 300_000;
const nodes = Number(process.argv[2] ?? 5000);
if (!Number.isInteger(nodes) || nodes < 2) {
  console.error(`nodes: found ${process.argv[2]}, expected a whole number from 2`);
  process.exit(2);
}

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const folder = mkdtempSync(join(tmpdir(), "warpsmith-bench-"));
const built = join(folder, "page");
await build({
  root,
  logLevel: "error",
  build: {
    outDir: built,
    emptyOutDir: true,
    reportCompressedSize: false,
    rollupOptions: { input: join(root, "bench/tree.html") },
  },
});

const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css" };
let report;
const reported = new Promise((resolve) => {
  report = resolve;
});
const server = createServer((request, response) => {
  const { pathname } = new URL(request.url, "http://localhost");
  if (request.method === "POST") {
    let body = "";
    request.on("data", (part) => {
      body += part;
    });
    request.on("end", () => {
      response.end();
      report(JSON.parse(body));
    });
    return;
  }
  try {
    const file = readFileSync(join(built, pathname));
    response
      .writeHead(200, { "content-type": TYPES[extname(pathname)] ?? "application/octet-stream" })
      .end(file);
  } catch {
    response.writeHead(404).end();
  }
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const { port } = server.address();

const browser = spawn(
  process.env.CHROMIUM ?? "chromium",
  [
    "--headless=new",
    "--no-sandbox",
    "--no-first-run",
    "--hide-scrollbars",
    "--window-size=1280,900",
    `--user-data-dir=${join(folder, "profile")}`,
    ...(process.env.GPU ? [] : ["--disable-gpu"]),
    // In headless mode a page is shown as long as it lives; it quits when it is told to.
    "--remote-debugging-port=0",
    `http://127.0.0.1:${port}/bench/tree.html?nodes=${nodes}`,
  ],
  { stdio: "ignore" },
);

const gone = new Promise((_, reject) => {
  browser.on("error", (error) => reject(new Error(`the browser did not start: ${error.message}`)));
  browser.on("exit", (code) => reject(new Error(`the browser ended with ${code} before it had measured`)));
  setTimeout(
    () => reject(new Error(`nothing was measured within ${LONGEST_MS / 1000} s`)),
    LONGEST_MS,
  ).unref();
});

let failed = false;
try {
  const { view, results: phases } = await Promise.race([reported, gone]);
  const load = loadavg()[0].toFixed(1);
  const drawing = process.env.GPU ? "as the browser chooses" : "in software";
  console.log(
    `${view.width} x ${view.height} at ${view.ratio}, drawn ${drawing}; ${cpus().length} cores, load ${load}\n`,
  );
  console.log("frames/s   interval ms median / p95 / max   work ms median / p95 / max   nodes   phase");
  for (const { phase, nodes: count, fps, interval, work } of phases) {
    const three = ({ median, p95, max }) => `${median} / ${p95} / ${max}`;
    console.log(
      `${fps.toFixed(1).padStart(8)}   ${three(interval).padEnd(30)}   ${three(work).padEnd(26)}   ${String(count).padEnd(5)}   ${phase}`,
    );
  }
  failed = phases.some(({ fps }) => fps < ENOUGH);
} catch (error) {
  console.error(String(error.message ?? error));
  failed = true;
} finally {
  browser.removeAllListeners("exit");
  browser.kill();
  server.close();
  setTimeout(() => {
    rmSync(folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
    process.exit(failed ? 1 : 0);
  }, 500);
}
