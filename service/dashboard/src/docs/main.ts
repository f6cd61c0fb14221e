/** The page at /docs: Swagger UI, from the package itself, on the OpenAPI document of the service that serves it. */

import SwaggerUI from "swagger-ui-dist/swagger-ui-es-bundle.js";
import "swagger-ui-dist/swagger-ui.css";
import { applyTheme, onThemeChange, readTheme } from "../design/theme";
import "./docs.css";
import { authorize, loginPath, type Session } from "./requests";

const DOCUMENT = "/openapi.json";

function followTheme(): void {
  const theme = readTheme();
  const dark = theme === "dark" || (theme === "system" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.classList.toggle("dark-mode", dark);
}

async function start(): Promise<void> {
  const session = (await (await fetch("/v1/session")).json()) as Session;
  if (session.keys_required && session.name === null) {
    location.replace(loginPath(location));
    return;
  }
  SwaggerUI({
    url: DOCUMENT,
    dom_id: "#docs",
    deepLinking: true,
    docExpansion: "none",
    filter: true,
    defaultModelsExpandDepth: 0,
    displayRequestDuration: true,
    validatorUrl: null, // its default asks another host
    requestInterceptor: (request) => authorize(request, session),
  });
}

applyTheme(readTheme());
followTheme();
onThemeChange(followTheme);
start().catch((error: unknown) => {
  const place = document.getElementById("docs");
  if (place)
    place.textContent = `The service did not answer (${String(error)}). Load the page again once it is up.`;
});
