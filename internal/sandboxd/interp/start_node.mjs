// Runs before the agent's code. The code API is loaded at the first call.
import module from "node:module";
import { existsSync, statSync } from "node:fs";
import { fileURLToPath, pathToFileURL } from "node:url";

globalThis.callMCPTool = async (...args) => {
  const site = new Error(); // the import below makes some runtimes forget who called
  const m = await import("@CODE_API@/helpers/callMCPTool.ts");
  globalThis.callMCPTool = m.callMCPTool;
  try {
    return await m.callMCPTool(...args);
  } catch (err) {
    const frames = (site.stack ?? "").split("\n").filter((line) => /^\s+at /.test(line)).slice(1)
      .map((line) => line.replace(/at ([^ (]+:\d+:\d+)$/, "at <anonymous> ($1)")); // as bun reads them
    if (err instanceof Error) err.stack = [`${err.name}: ${err.message}`, ...frames].join("\n");
    throw err;
  }
};

// './servers/x' is a folder and './helpers/callMCPTool' lacks its ending: both are found, as by the
// other runtimes.
function complete(specifier, parent) {
  if (!/^(\.{1,2}\/|\/|file:)/.test(specifier) || !parent?.startsWith("file:")) return null;
  const path = fileURLToPath(new URL(specifier, parent));
  if (existsSync(path) && statSync(path).isFile()) return null;
  for (const ending of [".ts", ".mts", ".js", ".mjs", "/index.ts", "/index.js"]) {
    if (existsSync(path + ending)) return pathToFileURL(path + ending).href;
  }
  return null;
}

if (module.registerHooks) {
  module.registerHooks({
    resolve: (specifier, context, next) => next(complete(specifier, context.parentURL) ?? specifier, context),
  });
} else {
  const source = `
    import { existsSync, statSync } from "node:fs";
    import { fileURLToPath, pathToFileURL } from "node:url";
    ${complete}
    export const resolve = (specifier, context, next) => next(complete(specifier, context.parentURL) ?? specifier, context);`;
  module.register("data:text/javascript," + encodeURIComponent(source));
}
