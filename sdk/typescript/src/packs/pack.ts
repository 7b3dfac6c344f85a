import { create } from "@bufbuild/protobuf";
import type { Connection } from "./connection.js";
import { Result, resultOf, textResult } from "./result.js";
import { check, parse, schemaText, type InputOf, type OutputOf, type Schema } from "./schema.js";
import { serve, type ServeOptions } from "./serve.js";
import { PackManifestSchema, ToolDefinitionSchema, type PackManifest, type ToolDefinition } from "./v1/packs_pb.js";

/** For whom a call is made. */
export interface Caller {
  readonly tenant: string;
  readonly user: string;
  readonly thread: string;
}

/** One call of a tool, while it runs. */
export interface Call {
  readonly caller: Caller;
  /** Aborted at the deadline, when the caller gives up, and when the connection is lost. */
  readonly signal: AbortSignal;
  /** Tells the caller how far the call is. `total` is 0 or absent when it is not known. */
  progress(done: number, total?: number, message?: string): void;
}

/** Properties of a pack. */
export interface PackOptions {
  /** What the tools are for. */
  description?: string;
  /** How many calls run at once; 16 when absent. */
  maxParallel?: number;
}

/** Properties of a tool. */
export interface ToolOptions<I extends Schema = Schema, O extends Schema = Schema> {
  /** The arguments: a schema of Zod, or a JSON Schema of an object. Any object when absent. */
  input?: I;
  /** The structured content of results: a schema of an object. None is promised when absent. */
  output?: O;
  title?: string;
  /** Only callers with all these capabilities see and call the tool. */
  requires?: readonly string[];
  /** How long a call may take, in whole seconds; 30000 when absent. */
  timeoutMs?: number;
  /** When the server puts the definition before a model. */
  disclosure?: "always" | "deferred" | "hidden";
  /** Hints of MCP, such as `{ readOnlyHint: true }`. */
  annotations?: Readonly<Record<string, unknown>>;
}

/**
 * What a tool does. What it returns is the result: with an output schema an object that fits, else a text, an object,
 * or a `Result` as it is. An error that it throws is the tool's error: the agent reads its message.
 */
export type Handler<Input, Output> = (input: Input, call: Call) => Output | Promise<Output>;

/** One tool of a pack. */
export interface Tool {
  readonly definition: ToolDefinition;
  readonly input: Schema;
  readonly output: Schema | undefined;
  readonly run: Handler<never, unknown>;
}

/** Where a pack writes of connections and their ends. */
export interface Log {
  info(text: string): void;
  warn(text: string): void;
  error(text: string, err?: unknown): void;
}

/** Tools that belong together, under one name. */
export class Pack {
  readonly #tools = new Map<string, Tool>();
  #connection: Connection | undefined;

  /** `id` is the name on the server: 1 to 63 of the characters a-z 0-9 -, beginning with a letter. */
  constructor(
    readonly id: string,
    readonly version: string,
    readonly options: PackOptions = {},
  ) {}

  /** Adds a tool. A server is told by `reload`. */
  tool<I extends Schema = Schema, O extends Schema = Schema>(
    name: string,
    description: string,
    options: ToolOptions<I, O>,
    run: Handler<OutputOf<I>, [Schema] extends [O] ? unknown : InputOf<O> | Result>,
  ): this {
    if (this.#tools.has(name)) throw new Error(`tool ${name}: the pack has one of that name`);
    const { input = { type: "object" }, output } = options;
    const definition = create(ToolDefinitionSchema, {
      name,
      description,
      title: options.title ?? "",
      inputSchemaJson: written(name, "arguments", () => schemaText(input, "input")),
      outputSchemaJson: output === undefined ? "" : written(name, "result", () => schemaText(output, "output")),
      requiredCapabilities: [...(options.requires ?? [])],
      timeoutSeconds: options.timeoutMs === undefined ? 0 : Math.max(Math.trunc(options.timeoutMs / 1000), 1),
      disclosure: options.disclosure ?? "",
      annotationsJson: options.annotations === undefined ? "" : JSON.stringify(options.annotations),
    });
    this.#tools.set(name, { definition, input, output, run });
    return this;
  }

  /** Takes a tool out. A server is told by `reload`. */
  remove(name: string): void {
    this.#tools.delete(name);
  }

  /** What the pack tells a server. */
  manifest(): PackManifest {
    return create(PackManifestSchema, {
      packId: this.id,
      version: this.version,
      description: this.options.description ?? "",
      maxParallelCalls: this.options.maxParallel ?? 0,
      tools: [...this.#tools.values()].map((t) => t.definition),
    });
  }

  /**
   * Offers the tools on a server until the signal is aborted. It then takes no new calls, lets those that run end, and
   * returns. A lost connection is made again, with longer pauses after each failure. It throws when the server refuses
   * the pack: its manifest, or its credential.
   */
  serve(options: ServeOptions): Promise<void> {
    return serve(this, options, (now, by) => {
      if (now !== undefined || this.#connection === by) this.#connection = now; // else another connection has replaced it
    });
  }

  /**
   * Tells the server which tools the pack has now. Calls under way go on. It throws when the server refuses them, and the
   * former tools stay offered, or when there is no connection: the next one has them.
   */
  async reload(): Promise<void> {
    if (this.#connection === undefined) throw new Error("the pack is not connected");
    await this.#connection.reload();
  }

  /** Runs a tool without a server, as a test does, and checks the input against the schema. */
  async call(name: string, input: object = {}, call: Partial<Call> = {}): Promise<Result> {
    const tool = this.find(name);
    if (tool === undefined) throw new Error(`the pack has no tool ${name}`);
    const value: unknown = JSON.parse(JSON.stringify(input));
    await check(tool.input, value, misfit);
    const caller = { tenant: "", user: "", thread: "" };
    return answer(tool, value, { caller, signal: new AbortController().signal, progress: () => undefined, ...call }, console);
  }

  /** Returns a tool. */
  find(name: string): Tool | undefined {
    return this.#tools.get(name);
  }
}

function written(name: string, what: string, text: () => string): string {
  try {
    return text();
  } catch (err) {
    throw new Error(`tool ${name}: the schema of its ${what}: ${messageOf(err)}`, { cause: err });
  }
}

/** The errors that the language throws: the author did not mean them for the agent. */
const unexpected = [TypeError, ReferenceError, RangeError, SyntaxError, EvalError, URIError];

/** Runs a tool. An error is the tool's own failure, and the program goes on. */
export async function answer(tool: Tool, input: unknown, call: Call, log: Pick<Log, "error">): Promise<Result> {
  try {
    const out = await tool.run((await parse(tool.input, input, misfit)) as never, call);
    if (tool.output === undefined || out instanceof Result) return resultOf(out);
    return resultOf(await parse(tool.output, out, "the result of the tool does not fit its schema"));
  } catch (err) {
    if (err instanceof Error && !unexpected.some((kind) => err instanceof kind)) return textResult(err.message, true);
    log.error(`the tool ${tool.definition.name} failed in a way that its author did not expect`, err);
    return textResult("the tool failed in a way that its author did not expect", true);
  }
}

const misfit = "the arguments do not fit the schema";

export function messageOf(err: unknown): string {
  return err instanceof Error ? err.message : String(err);
}
