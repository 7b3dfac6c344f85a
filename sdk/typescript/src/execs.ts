import * as constants from "./constants.js";
import { LostError, SkerryError } from "./errors.js";
import type { Approval, Code, Command, ExecInfo, ExecResult, Process, Script } from "./models.js";
import { decoded, toBase64, type Message } from "./sse.js";
import { Terminal } from "./terminal.js";
import { notConnected } from "./repeat.js";
import { path, sleep, type CallOptions, type Request, type Transport } from "./transport.js";

/** One thing that an exec did. `n` is its number, from 1. */
export type ExecEvent =
  | { n: number; type: "started"; exec_id: string }
  | { n: number; type: "stdout" | "stderr"; exec_id: string; data: Uint8Array }
  | { n: number; type: "approval_required" | "approval_decided"; exec_id: string; approval: Partial<Approval> }
  | { n: number; type: "exit"; exec_id: string; result: ExecResult };

/** Whether the server answered that asking again is of no use. */
function settled(err: unknown): boolean {
  return err instanceof SkerryError && err.status < 500 && !constants.passingStatuses.includes(err.status);
}

/** The events of an exec, over as many connections as it takes. */
export async function* follow(t: Transport, thread: string, begin: Request | { exec: string; after: number }, o: CallOptions): AsyncGenerator<ExecEvent, void, void> {
  let exec = "exec" in begin ? begin.exec : "";
  let last = "exec" in begin ? begin.after : 0;
  const first = "exec" in begin ? undefined : begin;
  let heardAt = performance.now();
  for (;;) {
    const request: Request =
      exec === "" && first !== undefined
        ? { ...first, kind: "once" }
        : { method: "GET", path: path("threads", thread, "execs", exec, "events"), query: { after: last } };
    try {
      for await (const m of t.events(request, o, exec === "" ? t.waitMs : t.silenceMs)) {
        const e = eventOf(m, exec);
        exec = e.exec_id;
        last = Math.max(last, e.n);
        heardAt = performance.now();
        yield e;
        if (e.type === constants.eventExit) return;
      }
    } catch (err) {
      if (err instanceof LostError || o.signal?.aborted || settled(err)) throw err;
      if (exec === "") throw err instanceof SkerryError || notConnected(err) ? err : new LostError(err); // what was sent may have been done
      if (performance.now() - heardAt > Math.max(constants.takeUpForMs, t.patienceMs)) throw err instanceof SkerryError ? err : new LostError(err, exec);
    }
    await sleep(constants.takeUpPauseMs, o.signal);
  }
}

function eventOf(m: Message, exec: string): ExecEvent {
  const data = JSON.parse(m.data) as Record<string, unknown>;
  const n = Number(m.id || 0);
  switch (m.event) {
    case constants.eventStdout:
    case constants.eventStderr:
      return { n, type: m.event, exec_id: exec, data: decoded(String(data["data"]), data["encoding"] as string | undefined) };
    case constants.eventApprovalRequired:
    case constants.eventApprovalDecided:
      return { n, type: m.event, exec_id: exec, approval: data as Partial<Approval> };
    case constants.eventExit:
      return { n, type: constants.eventExit, exec_id: exec, result: data as unknown as ExecResult };
    default:
      return { n, type: constants.eventStarted, exec_id: String(data["exec_id"] ?? exec) };
  }
}

/** The result at the end of events. */
export async function ended(events: AsyncIterable<ExecEvent>): Promise<ExecResult> {
  for await (const e of events) {
    if (e.type === constants.eventExit) return e.result;
  }
  throw new LostError(new Error("the stream had no end"));
}

/** stdout of a result as it was written. */
export function stdoutBytes(r: ExecResult): Uint8Array {
  return decoded(r.stdout, r.encoding);
}

/** stderr of a result as it was written. */
export function stderrBytes(r: ExecResult): Uint8Array {
  return decoded(r.stderr, r.encoding);
}

/** An exec that was started in the background, or is named by its id. */
export class Exec {
  readonly #t: Transport;

  constructor(
    t: Transport,
    readonly threadId: string,
    readonly id: string,
  ) {
    this.#t = t;
  }

  #path(...more: string[]): string {
    return path("threads", this.threadId, "execs", this.id, ...more);
  }

  /** Its events after a number, 0 for all, as they come. */
  events(after = 0, o: CallOptions = {}): AsyncGenerator<ExecEvent, void, void> {
    return follow(this.#t, this.threadId, { exec: this.id, after }, o);
  }

  /** Waits for its end. */
  wait(o: CallOptions = {}): Promise<ExecResult> {
    return ended(this.events(0, o));
  }

  /** It as it is now: its status is running until it has ended. */
  result(o: CallOptions = {}): Promise<ExecResult> {
    return this.#t.call({ method: "GET", path: this.#path() }, o);
  }

  /** Writes to its stdin. */
  async write(data: string | Uint8Array, o: CallOptions = {}): Promise<void> {
    const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
    await this.#t.call({ method: "POST", path: this.#path("stdin"), body: { data: toBase64(bytes), encoding: "base64" }, kind: "once" }, o);
  }

  /** Ends its stdin. */
  async closeStdin(o: CallOptions = {}): Promise<void> {
    await this.#t.call({ method: "POST", path: this.#path("stdin"), body: { close: true }, kind: "once" }, o);
  }

  /** Joins its terminal, when it was started with pty. `after` is the number of the last event that the caller has. */
  terminal(after = 0, o: CallOptions = {}): Promise<Terminal> {
    return Terminal.join(this.#t, this.threadId, this.id, after, o);
  }

  /** Sends a signal such as TERM to all of its processes. */
  async signal(signal: string, o: CallOptions = {}): Promise<void> {
    await this.#t.call({ method: "POST", path: this.#path("signal"), body: { signal }, kind: "once" }, o);
  }

  /** Ends it with all that it started. */
  async kill(o: CallOptions = {}): Promise<void> {
    await this.#t.call({ method: "DELETE", path: this.#path() }, o);
  }
}

/** Runs things in a thread. A command that fails is a result with its exit code; an error is what could not be done. */
export class Runs {
  protected readonly t: Transport;

  constructor(
    t: Transport,
    readonly id: string,
  ) {
    this.t = t;
  }

  #run(parts: string[], body: unknown, o: CallOptions): AsyncGenerator<ExecEvent, void, void> {
    return follow(this.t, this.id, { method: "POST", path: path("threads", this.id, ...parts), body }, o);
  }

  /** Runs a command and waits for its end. */
  exec(command: string | Command, o: CallOptions = {}): Promise<ExecResult> {
    return ended(this.execStream(command, o));
  }

  /** Runs a command and gives its events as they come. To stop looping ends nothing: `kill` of an exec does. */
  execStream(command: string | Command, o: CallOptions = {}): AsyncGenerator<ExecEvent, void, void> {
    return this.#run(["exec"], { ...commandOf(command), background: false }, o);
  }

  /** Runs a command in the background. */
  async start(command: string | Command, o: CallOptions = {}): Promise<Exec> {
    const r: Request = { method: "POST", path: path("threads", this.id, "exec"), body: { ...commandOf(command), background: true }, kind: "once" };
    const started = await this.t.call<ExecResult>(r, { timeoutMs: this.t.waitMs, ...o });
    return this.execById(started.exec_id);
  }

  /** Names an exec of the thread. */
  execById(id: string): Exec {
    return new Exec(this.t, this.id, id);
  }

  /** The execs of the thread, newest first. */
  async execs(o: CallOptions = {}): Promise<ExecInfo[]> {
    return (await this.t.call<{ items: ExecInfo[] }>({ method: "GET", path: path("threads", this.id, "execs") }, o)).items;
  }

  /** The processes that commands with `leave_processes` left; with `all` also those of commands that run, 512 at most. */
  async processes(o: CallOptions & { all?: boolean } = {}): Promise<Process[]> {
    const query = o.all ? { all: "true" } : {};
    return (await this.t.call<{ items: Process[] }>({ method: "GET", path: path("threads", this.id, "processes"), query }, o)).items;
  }

  /** Ends one of them, with all below it. */
  async killProcess(pid: number, o: CallOptions = {}): Promise<void> {
    await this.t.call({ method: "DELETE", path: path("threads", this.id, "processes", String(pid)) }, o);
  }

  /** Runs a program text and waits for its end. */
  executeCode(code: Code, o: CallOptions = {}): Promise<ExecResult> {
    return ended(this.codeStream(code, o));
  }

  /** `execStream` for a program text. */
  codeStream(code: Code, o: CallOptions = {}): AsyncGenerator<ExecEvent, void, void> {
    return this.#run(["execute_code"], code, o);
  }

  /** Runs a script of a skill and waits for its end. */
  runSkill(skill: string, script: Script, o: CallOptions = {}): Promise<ExecResult> {
    return ended(this.skillStream(skill, script, o));
  }

  /** `execStream` for a script of a skill. */
  skillStream(skill: string, script: Script, o: CallOptions = {}): AsyncGenerator<ExecEvent, void, void> {
    return this.#run(["skills", skill, "run"], script, o);
  }
}

function commandOf(c: string | Command): Command {
  return typeof c === "string" ? { command: c } : c;
}
