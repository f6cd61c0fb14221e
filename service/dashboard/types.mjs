// Makes the types of the API's documents, src/api/schema.d.ts, from openapi.json: `npm run types`.
// The file is written whole or not at all, and only where it changes: a build and a check may run side by side, and
// hatch_build.py takes a newer source for a reason to build again.
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import openapiTS, { astToString, COMMENT_HEADER } from "openapi-typescript";

const document = new URL("openapi.json", import.meta.url);
const made = fileURLToPath(new URL("src/api/schema.d.ts", import.meta.url));

const types = COMMENT_HEADER + astToString(await openapiTS(document, { silent: true }));
if (!existsSync(made) || readFileSync(made, "utf8") !== types) {
  const unfinished = `${made}.${process.pid}`;
  writeFileSync(unfinished, types);
  renameSync(unfinished, made);
}
