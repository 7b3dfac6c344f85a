/**
 * Tools for LangChain.js and LangGraph.js. Each works in the thread that the run's config names as
 * `configurable.thread_id`, so that one set of tools serves all conversations. An agent of `createAgent` takes
 * `skerryMiddleware` of `@skerry/client/langchain/middleware`; a graph of one's own calls `skerryOffer` before each
 * call of the model, and `skerryCalls` for what the model asks for.
 *
 * @packageDocumentation
 */
import { ToolMessage, type BaseMessage } from "@langchain/core/messages";
import type { RunnableConfig } from "@langchain/core/runnables";
import { StructuredTool, ToolInputParsingException, tool, type StructuredToolInterface } from "@langchain/core/tools";
import { Thread, type Skerry } from "./client.js";
import { codeTimeoutMs, execTimeoutMs, maxCodeTimeoutMs, maxExecTimeoutMs, outputs, readLines, workspace } from "./constants.js";
import { ConnectionError, DeadlineError, LostError, SkerryError } from "./errors.js";
import type { ExecResult, Language, ToolDefinition } from "./models.js";
import { contentOf, textOf } from "./toolresults.js";
import type { CallOptions } from "./transport.js";

/** The part of a run's config that is looked at. */
export interface RunConfig {
  configurable?: Record<string, unknown> | undefined;
  signal?: AbortSignal | undefined;
}

/** Options of the tools. */
export interface ToolOptions {
  /** Only tools of these names; all when absent. What a thread's prompt tells of, `skerryOffer` binds anyway. */
  only?: ToolName[];
  /** Bind tools that are marked as `defer_loading`, too, for providers that search by themselves. */
  deferred?: boolean;
  /** The thread of a run, in place of `configurable.thread_id`. */
  threadId?: (config: RunConfig) => string | undefined;
}

/** The names of the tools. */
export type ToolName =
  | "bash"
  | "execute_code"
  | "list_servers"
  | "search_tools"
  | "activate_skill"
  | "read_skill_file"
  | "search_skills"
  | "run_skill"
  | "call_skill_tool"
  | "read_file"
  | "write_file"
  | "str_replace"
  | "ls"
  | "glob"
  | "grep";

/** What the server offers a thread at one moment. Text and tools are of one answer, so they speak of the same. */
export interface Offer {
  /** For the system prompt. */
  text: string;
  /** `direct`: the model calls each tool itself; `code`: it calls tools by `execute_code`. */
  mode: string;
  /** To bind. */
  tools: StructuredToolInterface[];
}

/** Asks the server what it offers the run's thread now. Ask before each call of the model: tools come and go. */
export async function skerryOffer(of: Skerry | Thread, config: RunConfig = {}, options: ToolOptions = {}): Promise<Offer> {
  const prompt = await threadOf(of, config, options).prompt(callOptions(config));
  const told: StructuredToolInterface[] = [];
  for (const d of prompt.tools) {
    const inner = d.defer_loading === true && options.deferred !== true ? undefined : skerryTool(of, d.name, options);
    if (inner !== undefined) told.push(new Described(d, inner));
  }
  const names = new Set(told.map((t) => t.name));
  return { text: prompt.text, mode: prompt.mode, tools: [...ownTools(of, options).filter((t) => !names.has(t.name)), ...told] };
}

/**
 * Makes the tool calls of a model's message, also of tools that were offered after the graph was made. A tool that is
 * gone is an error for the model to read. `tools` are some of one's own.
 */
export async function skerryCalls(
  of: Skerry | Thread,
  message: BaseMessage | undefined,
  config: RunConfig = {},
  options: ToolOptions & { tools?: StructuredToolInterface[] } = {},
): Promise<ToolMessage[]> {
  const calls = (message as { tool_calls?: { id?: string; name: string; args: Record<string, unknown> }[] } | undefined)?.tool_calls ?? [];
  return Promise.all(
    calls.map(async (call) => {
      const answer = (content: string, status: "success" | "error") => new ToolMessage({ content, status, name: call.name, tool_call_id: call.id ?? "" });
      const one = options.tools?.find((t) => t.name === call.name) ?? skerryTool(of, call.name, options);
      if (one === undefined) return answer(`error: there is no tool ${call.name}`, "error");
      try {
        const out: unknown = await one.invoke({ ...call, type: "tool_call" }, config as RunnableConfig);
        return ToolMessage.isInstance(out) ? out : answer(textOf(out), "success");
      } catch (err) {
        if (!(err instanceof ToolInputParsingException)) throw err;
        return answer(`error: ${err.message}`, "error");
      }
    }),
  );
}

/**
 * What the agent gets for a message of a user: the text of the command that it is ("/sales:call-prep Acme"), or itself.
 * The server is not asked about a message that does not begin with a slash.
 */
export async function skerryMessage(of: Skerry | Thread, text: string, config: RunConfig, options: ToolOptions = {}): Promise<string> {
  if (!text.trimStart().startsWith("/")) return text;
  return (await threadOf(of, config, options).typedCommand(text, callOptions(config))).message;
}

/** The tools for commands and files, which no prompt tells of. */
export function ownTools(of: Skerry | Thread, options: ToolOptions = {}): StructuredToolInterface[] {
  return skerryTools(of, options).filter((t) => !toldNames.has(t.name));
}

/** The tool of a name that the server can carry out: one of an MCP server has `__` in its name, behind the server's. */
export function skerryTool(of: Skerry | Thread, name: string, options: ToolOptions = {}): StructuredToolInterface | undefined {
  const { only: _, ...rest } = options;
  return name.includes("__") ? mcpTool(of, name, options) : skerryTools(of, rest).find((t) => t.name === name);
}

/** What the prompt tells of is bound when it tells of it. */
const toldNames = new Set<string>(["execute_code", "list_servers", "search_tools", "search_skills", "activate_skill", "read_skill_file", "call_skill_tool"] satisfies ToolName[]);

/** A tool as the server's prompt describes it. The schema is for the model: the server checks the arguments. */
class Described extends StructuredTool {
  override name: string;
  override description: string;
  override schema: Record<string, unknown>;
  readonly #inner: StructuredToolInterface;

  constructor(d: ToolDefinition, inner: StructuredToolInterface) {
    super(d.defer_loading === true ? { extras: { defer_loading: true } } : {});
    this.name = d.name;
    this.description = d.description;
    // A stranger wrote it. LangChain checks arguments by it, without a bound on the time: so #inner has one of its own.
    this.schema = { type: "object", properties: {}, ...(typeof d.input_schema === "object" ? d.input_schema : {}) };
    this.#inner = inner;
  }

  protected override _call(): Promise<never> {
    throw new Error("invoke calls the tool");
  }

  override invoke = ((input: never, config?: never) => this.#inner.invoke(input, config)) as StructuredTool["invoke"];
}

function mcpTool(of: Skerry | Thread, name: string, options: ToolOptions): StructuredToolInterface {
  return calling(of, options, { name, description: name, schema: { type: "object" } }, (input) => [name, input]);
}

/** A tool of the model that calls a tool of the server: the one that `target` names, with the arguments behind the name. */
function calling(
  of: Skerry | Thread,
  options: ToolOptions,
  shown: { name: string; description: string; schema: object },
  target: (input: object) => [string, object],
): StructuredToolInterface {
  const { name } = shown;
  return tool(
    async (input: unknown, config: RunConfig): Promise<[unknown, unknown]> => {
      try {
        const result = await threadOf(of, config, options).tools.call(...target(input as object), { content: true, ...callOptions(config) });
        const [content, artifact] = contentOf(result);
        if (!result.is_error) return [content, artifact];
        return [failed(name, config, typeof content === "string" ? content : textOf(result.result)), undefined];
      } catch (err) {
        const more = err instanceof SkerryError && err.code === "not_found" ? ". The tools may have changed: use one that you have now." : "";
        return [failed(name, config, `error: ${reason(err, config)}${more}`), undefined];
      }
    },
    { ...shown, responseFormat: "content_and_artifact" },
  ) as unknown as StructuredToolInterface;
}

/** Why a call failed, for the model. What is no failure of the call is thrown: the run was ended, or names no thread. */
function reason(err: unknown, config: RunConfig): string {
  const known = err instanceof SkerryError || err instanceof ConnectionError || err instanceof DeadlineError || err instanceof LostError;
  if (!known || config.signal?.aborted === true) throw err;
  return err.message;
}

/** A failure as the tool's answer: a message with the status error, where there is a call to answer. */
function failed(name: string, config: RunConfig, content: string): ToolMessage | string {
  const id = (config as { toolCall?: { id?: string } }).toolCall?.id;
  return id === undefined ? content : new ToolMessage({ content, name, tool_call_id: id, status: "error" });
}

function threadOf(of: Skerry | Thread, config: RunConfig, options: ToolOptions): Thread {
  if (of instanceof Thread) return of;
  const id = options.threadId === undefined ? config.configurable?.["thread_id"] : options.threadId(config);
  if (typeof id !== "string" || id === "") {
    throw new Error('the run names no thread: call it with {configurable: {thread_id: "…"}}');
  }
  return of.thread(id);
}

function callOptions(config: RunConfig): CallOptions {
  return config.signal === undefined ? {} : { signal: config.signal };
}

const text = (description: string) => ({ type: "string", description }) as const;
const filePath = text(`absolute: ${workspace}/…, /mnt/user-data/uploads/… and /mnt/user-data/outputs/… can be written; /mnt/skills/… can be read`);

/** What a model reads of a run. */
function shown(r: ExecResult): string {
  const parts = [r.stdout, r.stderr === "" ? "" : `stderr:\n${r.stderr}`];
  if (r.status !== "exited") parts.push(`ended by ${r.status}${r.detail === undefined ? "" : `: ${r.detail}`}`);
  else if (r.exit_code !== 0) parts.push(`exit code ${r.exit_code}`);
  for (const path of [r.stdout_path, r.stderr_path]) if (path !== null) parts.push(`cut; all of it is in ${path}`);
  const changed = r.files.filter((f) => f.path.startsWith(`${outputs}/`)).map((f) => `${f.change} ${f.path}`);
  return [...parts, ...changed].filter((p) => p !== "").join("\n") || "(no output)";
}

/**
 * Skerry's own tools, for all that takes LangChain tools. Tools of MCP servers are those of a thread: see `skerryOffer`.
 * An error of the server is the tool's answer to the model.
 */
export function skerryTools(of: Skerry | Thread, options: ToolOptions = {}): StructuredToolInterface[] {
  const make = <T>(
    name: ToolName,
    description: string,
    properties: Record<string, object>,
    required: string[],
    run: (thread: Thread, input: T, o: CallOptions) => Promise<unknown>,
  ): StructuredToolInterface =>
    tool(
      async (input: unknown, config: RunConfig): Promise<string | ToolMessage> => {
        const thread = threadOf(of, config, options);
        try {
          const out = await run(thread, input as T, callOptions(config));
          return typeof out === "string" ? out : JSON.stringify(out);
        } catch (err) {
          return failed(name, config, `error: ${reason(err, config)}`);
        }
      },
      { name, description, schema: { type: "object", properties, required, additionalProperties: false } },
    ) as unknown as StructuredToolInterface;

  const all = [
    make<{ command: string; timeout?: number }>(
      "bash",
      `Run a command in the conversation's sandbox, in ${workspace}. Files stay; processes in the background do not.`,
      { command: text("for a shell"), timeout: { type: "number", description: `seconds; ${execTimeoutMs / 1000} when absent, at most ${maxExecTimeoutMs / 1000}` } },
      ["command"],
      async (t, i, o) => shown(await t.exec({ command: i.command, ...(i.timeout === undefined ? {} : { timeout_s: i.timeout }) }, o)),
    ),
    make<{ code: string; language?: Language; timeout?: number }>(
      "execute_code",
      "Run code in the conversation's sandbox. TypeScript, JavaScript and Python can call tools: import them from './servers/<server>' (Python: from servers.<server> import …). Print what you want to see.",
      {
        code: text("the program"),
        language: { type: "string", enum: ["typescript", "javascript", "python", "bash", "wasm"], description: "typescript when absent" },
        timeout: { type: "number", description: `seconds; ${codeTimeoutMs / 1000} when absent, at most ${maxCodeTimeoutMs / 1000}` },
      },
      ["code"],
      async (t, i, o) => shown(await t.executeCode(i, o)),
    ),
    make<object>("list_servers", "List the servers whose tools code can call.", {}, [], (t, _, o) => t.tools.servers(o)),
    make<{ query: string; server?: string; detail?: "name" | "desc" | "full"; limit?: number; output_schema?: boolean }>(
      "search_tools",
      "Find tools by what they do. detail: name, desc (when absent) or full, which has the parameters of the best few, and names the next. A text that ends in … is whole in the file at wrapper_path.",
      {
        query: text("what the tool is for"),
        server: text("only of this server"),
        detail: { type: "string", enum: ["name", "desc", "full"] },
        limit: { type: "integer", minimum: 1, maximum: 15 },
        output_schema: { type: "boolean", description: "with full" },
      },
      ["query"],
      (t, i, o) => t.tools.search(i, o),
    ),
    make<{ name: string }>(
      "activate_skill",
      "Get the instructions of a skill, with its folder and the list of its files.",
      { name: text("name of the skill") },
      ["name"],
      (t, i, o) => t.skills.activate(i.name, o),
    ),
    make<{ skill: string; path: string }>(
      "read_skill_file",
      "Read a text file of a skill. For a binary file the result is its path in the sandbox.",
      { skill: text("name of the skill"), path: text("relative to the skill's folder") },
      ["skill", "path"],
      async (t, i, o) => {
        const f = await t.skills.file(i.skill, i.path, o);
        return f.text ?? `not text: ${f.location}`;
      },
    ),
    make<{ query?: string }>("search_skills", "Find skills by what they do: at most 15, best first. Without a query, all.", { query: text("what the skill is for") }, [], (t, i, o) =>
      t.skills.search(i.query ?? "", o),
    ),
    make<{ skill: string; script: string; args?: string[]; timeout_s?: number }>(
      "run_skill",
      "Run a script of a skill in the sandbox.",
      {
        skill: text("name of the skill"),
        script: text("relative to the skill's folder, such as scripts/extract.py"),
        args: { type: "array", items: { type: "string" } },
        timeout_s: { type: "number", description: `seconds; ${execTimeoutMs / 1000} when absent, at most ${maxExecTimeoutMs / 1000}` },
      },
      ["skill", "script"],
      async (t, { skill, ...run }, o) => shown(await t.runSkill(skill, run, o)),
    ),
    calling(
      of,
      options,
      {
        name: "call_skill_tool" satisfies ToolName,
        description: "Call a tool that belongs to an active skill. activate_skill shows which there are.",
        schema: {
          type: "object",
          properties: { skill: text("name of the skill"), tool: text("its name within the skill"), input: { type: "object", description: "as the input schema of the tool says" } },
          required: ["skill", "tool"],
          additionalProperties: false,
        },
      },
      (i) => {
        const { skill, tool: name, input = {} } = i as { skill: string; tool: string; input?: object };
        return [`skill/${skill}/${name}`, input];
      },
    ),
    make<{ path: string; offset?: number; limit?: number }>(
      "read_file",
      "Read a text file by lines.",
      { path: filePath, offset: { type: "integer", description: "lines to pass over" }, limit: { type: "integer", description: `lines to give; ${readLines} when absent` } },
      ["path"],
      async (t, { path, ...range }, o) => {
        const f = await t.files.read(path, range, o);
        if (f.encoding === "base64") return `not text: ${f.bytes} bytes`;
        return f.next_offset === undefined ? f.content : `${f.content}\n(lines ${f.start_line} to ${f.end_line} of ${f.total_lines})`;
      },
    ),
    make<{ path: string; content: string }>("write_file", "Write a text file; folders above it are made.", { path: filePath, content: text("all of it") }, ["path", "content"], (t, i, o) =>
      t.files.write(i.path, i.content, o),
    ),
    make<{ path: string; old: string; new: string; replace_all?: boolean }>(
      "str_replace",
      "Replace a text in a file. It has to be there exactly once, unless replace_all is true.",
      { path: filePath, old: text("what is there"), new: text("what is to be there"), replace_all: { type: "boolean" } },
      ["path", "old", "new"],
      (t, i, o) => t.files.edit(i.path, i.old, i.new, { replaceAll: i.replace_all ?? false }, o),
    ),
    make<{ path: string }>("ls", "List a folder.", { path: filePath }, ["path"], (t, i, o) => t.files.list(i.path, 1, o)),
    make<{ path: string; pattern: string }>(
      "glob",
      "Find files by a pattern. ** is any number of folders.",
      { path: filePath, pattern: text("relative to path") },
      ["path", "pattern"],
      (t, i, o) => t.files.glob(i.path, i.pattern, o),
    ),
    make<{ path: string; pattern: string; regex?: boolean; glob?: string; ignore_case?: boolean }>(
      "grep",
      "Find lines in the files below a folder.",
      { path: filePath, pattern: text("plain text, or with regex an RE2 expression"), regex: { type: "boolean" }, glob: text("only in files that match"), ignore_case: { type: "boolean" } },
      ["path", "pattern"],
      (t, { path, ...how }, o) => t.files.grep(path, how, o),
    ),
  ];
  return options.only === undefined ? all : all.filter((t) => options.only?.includes(t.name as ToolName));
}
