/**
 * Skerry for agents of LangChain.js: what the server offers a thread is bound before each call of the model. The system
 * prompt says what the tools are that the model gets in the same call, also when MCP servers come and go meanwhile.
 *
 * @packageDocumentation
 */
import { createMiddleware } from "langchain";
import type { Skerry, Thread } from "./client.js";
import { ownTools, skerryOffer, skerryTool, type ToolOptions } from "./langchain.js";

/**
 * Middleware for `createAgent`, for the thread that a run's config names as `configurable.thread_id`, or for one thread.
 * A tool of the agent's own stays when the server has one of the same name.
 */
export function skerryMiddleware(of: Skerry | Thread, options: ToolOptions = {}) {
  const own = ownTools(of, options);
  return createMiddleware({
    name: "Skerry",
    tools: own,
    wrapModelCall: async (request, handler) => {
      const offer = await skerryOffer(of, request.runtime, options);
      // The agent has the own tools already, less those that another middleware took out.
      const there = new Set([...request.tools, ...own].map(nameOf));
      const tools = [...request.tools, ...offer.tools.filter((t) => !there.has(t.name))];
      return handler({ ...request, tools, systemMessage: offer.text === "" ? request.systemMessage : request.systemMessage.concat(offer.text) });
    },
    wrapToolCall: (request, handler) => {
      const found = request.tool ?? skerryTool(of, request.toolCall.name, options);
      return handler(found === undefined ? request : { ...request, tool: found });
    },
  });
}

function nameOf(tool: object): unknown {
  const t = tool as { name?: unknown; function?: { name?: unknown } };
  return t.name ?? t.function?.name;
}
