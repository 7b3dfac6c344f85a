/**
 * Tools for LangChain.js and LangGraph.js. Each works in the thread that the run's config names as
 * `configurable.thread_id`, so that one set of tools serves all conversations.
 *
 * @packageDocumentation
 */
import { tool, type StructuredToolInterface } from "@langchain/core/tools";
import type { Skerry, Thread } from "./client.js";
import { codeTimeoutMs, execTimeoutMs, maxCodeTimeoutMs, maxExecTimeoutMs, outputs, readLines, workspace } from "./constants.js";
import { SkerryError } from "./errors.js";
import type { ExecResult, Language } from "./models.js";
import type { CallOptions } from "./transport.js";

/** The part of a run's config that is looked at. */
export interface RunConfig {
  configurable?: Record<string, unknown> | undefined;
  signal?: AbortSignal | undefined;
}

/** Options of `skerryTools`. */
export interface ToolOptions {
  /** Only tools of these names; all when absent. */
  only?: ToolName[];
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
  | "read_file"
  | "write_file"
  | "str_replace"
  | "ls"
  | "glob"
  | "grep";

/** What to put into the system prompt: the skills and tools of the run's thread. */
export async function skerryPrompt(skerry: Skerry, config: RunConfig, options: ToolOptions = {}): Promise<string> {
  return (await threadOf(skerry, config, options).prompt(callOptions(config))).text;
}

function threadOf(skerry: Skerry, config: RunConfig, options: ToolOptions): Thread {
  const id = options.threadId === undefined ? config.configurable?.["thread_id"] : options.threadId(config);
  if (typeof id !== "string" || id === "") {
    throw new Error('the run names no thread: call it with {configurable: {thread_id: "…"}}');
  }
  return skerry.thread(id);
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

/** The tools, for `bindTools`, `createReactAgent`, `ToolNode` and all else that takes LangChain tools. */
export function skerryTools(skerry: Skerry, options: ToolOptions = {}): StructuredToolInterface[] {
  const make = <T>(
    name: ToolName,
    description: string,
    properties: Record<string, object>,
    required: string[],
    run: (thread: Thread, input: T, o: CallOptions) => Promise<unknown>,
  ): StructuredToolInterface =>
    tool(
      async (input: unknown, config: RunConfig): Promise<string> => {
        const thread = threadOf(skerry, config, options);
        try {
          const out = await run(thread, input as T, callOptions(config));
          return typeof out === "string" ? out : JSON.stringify(out);
        } catch (err) {
          // What the model can mend, it is told. The rest is for the program.
          if (err instanceof SkerryError && ["not_found", "invalid", "conflict", "forbidden", "not_supported"].includes(err.code)) {
            return `error: ${err.message}`;
          }
          throw err;
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
        language: { type: "string", enum: ["typescript", "javascript", "python", "bash"], description: "typescript when absent" },
        timeout: { type: "number", description: `seconds; ${codeTimeoutMs / 1000} when absent, at most ${maxCodeTimeoutMs / 1000}` },
      },
      ["code"],
      async (t, i, o) => shown(await t.executeCode(i, o)),
    ),
    make<object>("list_servers", "List the servers whose tools code can call.", {}, [], (t, _, o) => t.tools.servers(o)),
    make<{ query: string; server?: string; detail?: "name" | "desc" | "full" }>(
      "search_tools",
      "Find tools by what they do. detail: name, desc (when absent) or full, which has the parameters and the path of the wrapper.",
      { query: text("what the tool is for"), server: text("only of this server"), detail: { type: "string", enum: ["name", "desc", "full"] } },
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
