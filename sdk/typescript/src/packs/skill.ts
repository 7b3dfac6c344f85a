import { Code, ConnectError } from "@connectrpc/connect";
import type { Thread } from "../client.js";
import { SkerryError } from "../errors.js";
import type { AddedSkill, VirtualSkill } from "../models.js";
import { bearerKey } from "./credential.js";
import { Pack, type Handler, type PackOptions, type ToolOptions } from "./pack.js";
import type { OutputOf, Schema } from "./schema.js";
import { serve, type ServeOptions } from "./serve.js";

/** A tool of a skill: a function of this program. */
export interface SkillTool<I = Schema> extends Omit<ToolOptions<Schema, Schema>, "input" | "disclosure"> {
  /** Its name within the skill. */
  name: string;
  description: string;
  /** The arguments: a schema of Zod, or a JSON Schema of an object. The type of the handler's argument comes from it. */
  input: I;
  handler: Handler<OutputOf<I>, unknown>;
}

/** A skill of one thread, with tools that are functions of this program. */
export interface SkillWithTools<T extends readonly Schema[] | [] = readonly Schema[]> extends Omit<VirtualSkill, "name"> {
  /** The name is that of a pack, too: 1 to 63 of the characters a-z 0-9 -, beginning with a letter. */
  name: string;
  tools: { [K in keyof T]: SkillTool<T[K]> };
  /** How many calls run at once; 16 when absent. */
  maxParallel?: PackOptions["maxParallel"];
}

/** How a program holds on to a skill. */
export type AttachOptions = Pick<ServeOptions, "tls" | "drainMs" | "log" | "signal">;

/** Describes a skill whose tools are functions of this program. `attach` gives it to a thread. */
export function virtualSkill<T extends readonly Schema[] | []>(skill: SkillWithTools<T>): { attach(thread: Thread, options?: AttachOptions): Promise<AttachedSkill> } {
  const { tools, maxParallel, ...body } = skill;
  const pack = () => {
    const made = new Pack(skill.name, "", maxParallel === undefined ? {} : { maxParallel });
    for (const { name, description, handler, ...options } of tools as unknown as readonly SkillTool[]) made.tool(name, description, options, handler);
    return made;
  };
  pack(); // an error in a schema is one of this call
  return { attach: (thread, options = {}) => AttachedSkill.of(thread, body, pack(), options) };
}

type WithChannel = AddedSkill & { channel?: { pack_id: string; key: string } };

/**
 * A skill that a thread has as long as this program provides its tools: until `close`, or the end of the signal. When the
 * server has lost it, because it was started again, it is attached anew. When another program has removed or replaced
 * it, or the thread is deleted, it is not.
 */
export class AttachedSkill implements AsyncDisposable {
  /** The skill as the server has it. */
  readonly added: AddedSkill;
  /** Why the tools are gone for good; undefined after `close`. */
  readonly closed: Promise<Error | undefined>;
  readonly #stop: AbortController;

  /** Gives the skill to a thread. The tools can be called when it returns, and the agent has activated the skill. */
  static async of(thread: Thread, skill: VirtualSkill, pack: Pack, options: AttachOptions): Promise<AttachedSkill> {
    const body = { ...skill, channel: true };
    const added: WithChannel = await thread.skills.add(body);
    const key = added.channel?.key;
    if (key === undefined) {
      await thread.skills.remove(skill.name);
      throw new Error("the server is too old: it knows no skills with tools");
    }
    const attached = new AttachedSkill(thread, body, pack, options, added, key);
    await attached.#there;
    return attached;
  }

  readonly #there: Promise<void>;

  private constructor(thread: Thread, skill: VirtualSkill, pack: Pack, options: AttachOptions, added: AddedSkill, key: string) {
    this.added = added;
    this.#stop = new AbortController();
    const signal = options.signal === undefined ? this.#stop.signal : AbortSignal.any([this.#stop.signal, options.signal]);
    let connected: () => void = () => undefined;
    const there = new Promise<undefined>((resolve) => (connected = () => resolve(undefined)));
    this.closed = hold(thread, skill, pack, { ...options, signal, server: thread.server, connected }, key);
    this.#there = Promise.race([there, this.closed.then((why) => Promise.reject(why ?? (signal.reason as Error)))]);
    this.#there.catch(() => undefined); // `of` throws it
  }

  /** Takes no new calls, lets those that run end, and takes the skill away. */
  async close(): Promise<void> {
    this.#stop.abort();
    const why = await this.closed;
    if (why !== undefined) throw why;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

/** Serves the tools, and attaches the skill again when the server has lost it. Returns why that ended. */
async function hold(thread: Thread, skill: VirtualSkill, pack: Pack, options: ServeOptions, key: string): Promise<Error | undefined> {
  let why: Error | undefined;
  for (;;) {
    try {
      await serve(pack, { ...options, credential: bearerKey(key) }, () => undefined, lost);
      break;
    } catch (err) {
      why = err as Error;
      if (codeOf(why) !== Code.Unauthenticated || options.signal?.aborted === true) break;
    }
    try {
      const added: WithChannel = await thread.skills.add({ ...skill, replace: false }); // one of another program stays
      key = added.channel?.key ?? "";
      why = undefined;
    } catch (err) {
      why = new Error(`the server has lost the skill ${skill.name}, and does not take it again`, { cause: err });
      break;
    }
  }
  if (codeOf(why) === Code.PermissionDenied || isCode(why?.cause, "conflict")) return why; // it is another's now, or is not there
  try {
    await thread.skills.remove(skill.name);
  } catch (err) {
    if (!isCode(err, "not_found")) why ??= err as Error;
  }
  return why;
}

/** Whether a stream has ended so that the skill has to be attached again, or is gone. */
function lost(code: Code): boolean {
  return [Code.InvalidArgument, Code.Unimplemented, Code.Unauthenticated, Code.PermissionDenied].includes(code);
}

function codeOf(err: Error | undefined): Code | undefined {
  return err?.cause instanceof ConnectError ? err.cause.code : undefined;
}

function isCode(err: unknown, code: string): boolean {
  return err instanceof SkerryError && err.code === code;
}
