// Runs before the agent's code. The code API is loaded at the first call.
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
