import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { brotliCompress, constants, gzip } from "node:zlib";
import { promisify } from "node:util";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

const out = join(import.meta.dirname, "../internal/api/console/dist");

/** Packs each file beside itself, once, so that the server packs nothing. index.html is another one for each response. */
function packed(): Plugin {
  return {
    name: "packed",
    apply: "build",
    async closeBundle() {
      await writeFile(join(out, ".gitkeep"), "");
      for (const entry of await readdir(out, { recursive: true, withFileTypes: true })) {
        if (!entry.isFile() || !/\.(js|css|svg)$/.test(entry.name)) continue;
        const file = join(entry.parentPath, entry.name);
        const body = await readFile(file);
        if (body.length < 512) continue;
        await writeFile(`${file}.gz`, await promisify(gzip)(body, { level: 9 }));
        await writeFile(`${file}.br`, await promisify(brotliCompress)(body, { params: { [constants.BROTLI_PARAM_SIZE_HINT]: body.length } }));
      }
    },
  };
}

// SKERRY_CONSOLE_SERVER is a server for `vite`, which shows changes as they are written.
const server = process.env["SKERRY_CONSOLE_SERVER"] ?? "http://127.0.0.1:8080";

export default defineConfig({
  base: "/ui/",
  plugins: [react(), packed()],
  html: { cspNonce: "SKERRY_CSP_NONCE" },
  resolve: {
    alias: [
      { find: "@skerry/client/transport", replacement: join(import.meta.dirname, "../sdk/typescript/src/transport.ts") },
      // Names of characters in a list: what browsers get by default asks a document by innerHTML, and a worker has none.
      { find: /^decode-named-character-reference$/, replacement: join(import.meta.dirname, "node_modules/decode-named-character-reference/index.js") },
      { find: "@skerry/client", replacement: join(import.meta.dirname, "../sdk/typescript/src/index.ts") },
    ],
  },
  worker: { format: "es" },
  build: { outDir: out, emptyOutDir: true, target: "es2023", assetsInlineLimit: 0, sourcemap: false, manifest: ".manifest.json", modulePreload: { polyfill: false } },
  server: { proxy: { "/api": { target: server, ws: true }, "/healthz": server } },
});
