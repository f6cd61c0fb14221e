import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Plugin } from "vite";

const NAME = "virtual:licences";
const RESOLVED = `\0${NAME}`;
const LICENCE_FILE = /^(licen[cs]e|copying|notice)(\.(md|txt|markdown))?$/i;

interface Lock {
  packages: Record<string, { version?: string; dev?: boolean; license?: string }>;
}

/** In the lock file, and in no page: a counter of installations, whose script is never run (.npmrc). */
const NOT_BUNDLED = new Set(["@scarf/scarf"]);

/** What the pages are built from, as the lock file names it: every package that is not for development alone. */
export function collectLicences(root: string) {
  const lock = JSON.parse(readFileSync(join(root, "package-lock.json"), "utf8")) as Lock;
  return Object.entries(lock.packages)
    .filter(([path, entry]) => path.startsWith("node_modules/") && !entry.dev)
    .filter(([path]) => !NOT_BUNDLED.has(path.slice("node_modules/".length)))
    .map(([path]) => {
      const folder = join(root, path);
      const manifest = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as {
        name: string;
        version: string;
        license?: string;
      };
      const text = readdirSync(folder)
        .filter((file) => LICENCE_FILE.test(file))
        .map((file) => readFileSync(join(folder, file), "utf8").trim())
        .join("\n\n");
      return {
        name: manifest.name,
        version: manifest.version,
        licence: manifest.license ?? "see text",
        text,
      };
    })
    .sort((a, b) => a.name.localeCompare(b.name));
}

/** Serves the licences of what is bundled as a module, read at build time. */
export function licences(): Plugin {
  let root = process.cwd();
  return {
    name: "warpsmith-licences",
    configResolved(config) {
      root = config.root;
    },
    resolveId(id) {
      return id === NAME ? RESOLVED : undefined;
    },
    load(id) {
      return id === RESOLVED ? `export default ${JSON.stringify(collectLicences(root))};` : undefined;
    },
  };
}
