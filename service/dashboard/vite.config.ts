import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";
import { licences } from "./vite.licences";

const service = process.env.WARPSMITH_URL ?? "http://127.0.0.1:8420";
// The service refuses changes that another origin's page asks for, so the proxy speaks as the service's own page.
const proxied = {
  target: service,
  changeOrigin: true,
  headers: { origin: service },
};

export default defineConfig({
  plugins: [react(), licences()],
  server: {
    proxy: Object.fromEntries(["/v1", "/healthz", "/readyz", "/openapi.json"].map((path) => [path, proxied])),
  },
  build: {
    target: "es2022",
    // Nothing is inlined as data: the policy admits scripts and styles from files alone.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
    // The dashboard, and the API's reference, which the service serves at /docs.
    rollupOptions: { input: ["index.html", "docs.html"] },
  },
  test: {
    environment: "jsdom",
    setupFiles: ["src/test/setup.ts"],
    css: false,
    restoreMocks: true,
  },
});
