// Runs before the agent's code. The code API is loaded at the first call.
globalThis.callMCPTool = async (...args) => {
  const m = await import("@CODE_API@/helpers/callMCPTool.ts");
  globalThis.callMCPTool = m.callMCPTool;
  return m.callMCPTool(...args);
};
