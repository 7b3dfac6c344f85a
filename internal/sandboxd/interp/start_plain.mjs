// Runs before the agent's code, on a node that cannot read the code API, which is TypeScript.
globalThis.callMCPTool = async () => {
  throw new Error("callMCPTool without an import needs bun, deno or node 22.6 in the sandbox: write TypeScript and import it from './helpers/callMCPTool'");
};
