import * as constants from "./constants.js";
import { Files } from "./files.js";
import { Runs } from "./execs.js";
import { SkerryError } from "./errors.js";
import { skillOf } from "./folder.js";
import type {
  AcquireOptions,
  ActiveSkill,
  AddedSkill,
  Approval,
  AuditRecord,
  AuditSummary,
  AuditVerification,
  Code,
  CodeContext,
  ContextOptions,
  Decision,
  ExecResult,
  Prompt,
  Sandbox,
  SandboxMetrics,
  Skill,
  SkillFile,
  SkillFound,
  SkillInstalled,
  Template,
  ThreadEvent,
  ThreadInfo,
  Tool,
  ToolResult,
  ToolSearch,
  ToolServers,
  TypedCommand,
  VirtualSkill,
} from "./models.js";
import type { AuditFilter, ThreadFilter, ToolQuery } from "./queries.js";
import { path, sleep, Transport, type CallOptions, type Options, type Query, type Request } from "./transport.js";

/** The client of one server. */
export class Skerry {
  readonly #t: Transport;

  /** Nothing is connected yet. What options leave out comes from the environment: SKERRY_SERVER and SKERRY_API_KEY. */
  constructor(options: Options = {}) {
    this.#t = new Transport(options);
  }

  /** Names a thread. The server is asked nothing: a thread's first call that needs a sandbox starts one. */
  thread(id: string): Thread {
    return new Thread(this.#t, id);
  }

  /** The caller's threads; for administrators those of another user, or with user "*" of the tenant. */
  threads(filter: ThreadFilter = {}, o: CallOptions = {}): AsyncGenerator<ThreadInfo, void, void> {
    const { labels, text, activeAfter, activeBefore, minDiskMib, ...rest } = filter;
    const label = Object.entries(labels ?? {}).map(([k, v]) => `${k}=${v}`);
    return this.#pages(path("threads"), { label, q: text, active_after: activeAfter?.toISOString(), active_before: activeBefore?.toISOString(), min_disk_mib: minDiskMib, ...rest }, o);
  }

  /** Kinds of sandbox that can be asked for. */
  async templates(o: CallOptions = {}): Promise<Template[]> {
    return (await this.#t.call<{ items: Template[] }>({ method: "GET", path: path("templates") }, o)).items;
  }

  async skills(o: CallOptions = {}): Promise<Skill[]> {
    return (await this.#t.call<{ skills: Skill[] }>({ method: "GET", path: path("skills") }, o)).skills;
  }

  skill(name: string, o: CallOptions = {}): Promise<Skill> {
    return this.#t.call({ method: "GET", path: path("skills", name) }, o);
  }

  /** Switches a skill on or off. */
  switchSkill(name: string, enabled: boolean, o: CallOptions = {}): Promise<Skill> {
    return this.#t.call({ method: "PUT", path: path("skills", name), body: { enabled } }, o);
  }

  /** Records of the audit log, newest first. */
  audit(filter: AuditFilter = {}, o: CallOptions = {}): AsyncGenerator<AuditRecord, void, void> {
    return this.#pages(path("audit"), auditQuery(filter), o);
  }

  /**
   * Records as they come: those behind the event with the id `after`, or from now on. A connection that is lost is made
   * again, and nothing is missed.
   */
  async *followAudit(filter: AuditFilter = {}, after = "", o: CallOptions = {}): AsyncGenerator<{ id: string; record: AuditRecord }, void, void> {
    let heardAt = performance.now();
    for (;;) {
      const headers: Record<string, string> = after === "" ? {} : { [constants.headerLastEventId]: after };
      try {
        for await (const m of this.#t.events({ method: "GET", path: path("audit", "stream"), query: auditQuery(filter), headers }, o, this.#t.silenceMs)) {
          heardAt = performance.now();
          after = m.id;
          yield { id: m.id, record: JSON.parse(m.data) as AuditRecord };
        }
      } catch (err) {
        const settled = err instanceof SkerryError && err.status < 500 && !constants.passingStatuses.includes(err.status);
        if (o.signal?.aborted || settled || performance.now() - heardAt > Math.max(constants.auditTakeUpForMs, this.#t.patienceMs)) throw err;
      }
      await sleep(constants.takeUpPauseMs, o.signal);
    }
  }

  /** How many records fit a filter: in all, by time (in at most so many spans; 60 when absent), and by the values of some fields. */
  auditSummary(filter: AuditFilter = {}, buckets?: number, o: CallOptions = {}): Promise<AuditSummary> {
    return this.#t.call({ method: "GET", path: path("audit", "summary"), query: { ...auditQuery(filter), buckets } }, o);
  }

  /** Whether the audit log is whole. */
  verifyAudit(o: CallOptions = {}): Promise<AuditVerification> {
    return this.#t.call({ method: "POST", path: path("audit", "verify"), body: {} }, o);
  }

  /** Calls that wait, or waited, for a person. */
  approvals(state?: Approval["state"], o: CallOptions = {}): AsyncGenerator<Approval, void, void> {
    return this.#pages(path("approvals"), { state }, o);
  }

  /** Lets a call through, or denies it. */
  decide(id: string, decision: Decision, o: CallOptions = {}): Promise<Approval> {
    return this.#t.call({ method: "POST", path: path("approvals", id), body: decision }, o);
  }

  /** Whether the server lives; it takes no key. */
  health(o: CallOptions = {}): Promise<{ status: string; version: string }> {
    return this.#t.call({ method: "GET", path: "/healthz" }, o);
  }

  /** Any request of the API whose answer is JSON, with the same rules. */
  call<T>(request: Request, o: CallOptions = {}): Promise<T> {
    return this.#t.call(request, o);
  }

  async *#pages<T>(where: string, query: Query, o: CallOptions): AsyncGenerator<T, void, void> {
    let cursor: string | undefined;
    do {
      const page: { items: T[]; next_cursor?: string } = await this.#t.call({ method: "GET", path: where, query: { ...query, cursor } }, o);
      yield* page.items;
      cursor = page.next_cursor;
    } while (cursor !== undefined);
  }
}

function auditQuery(f: AuditFilter): Query {
  const time = (t: Date | string | undefined) => (t instanceof Date ? t.toISOString() : t);
  return { ...f, since: time(f.since), until: time(f.until) };
}

/** One thread of the caller: its sandbox, its files and its tools. */
export class Thread extends Runs {
  /** Its files. */
  readonly files: Files;
  /** The tools of MCP servers that it may use. */
  readonly tools: Tools;
  /** Its skills. */
  readonly skills: ThreadSkills;

  constructor(t: Transport, id: string) {
    super(t, id);
    this.files = new Files(t, id);
    this.tools = new Tools(t, id);
    this.skills = new ThreadSkills(t, id);
  }

  /** The address of its server. */
  get server(): string {
    return this.t.server;
  }

  /** Gives the thread a sandbox. Many callers at once get the same one. Its state is starting when it takes longer than wait_s. */
  acquire(options: AcquireOptions = {}, o: CallOptions = {}): Promise<Sandbox> {
    return this.#sandbox({ method: "PUT", path: path("threads", this.id, "sandbox"), body: options }, o);
  }

  async #sandbox(r: Request, o: CallOptions): Promise<Sandbox> {
    return (await this.t.call<{ sandbox: Sandbox }>(r, { timeoutMs: this.t.waitMs, ...o })).sandbox;
  }

  info(o: CallOptions = {}): Promise<ThreadInfo> {
    return this.t.call({ method: "GET", path: path("threads", this.id) }, o);
  }

  /** What the sandbox uses now. It starts none. */
  metrics(o: CallOptions = {}): Promise<SandboxMetrics> {
    return this.t.call({ method: "GET", path: path("threads", this.id, "sandbox", "metrics") }, o);
  }

  /** Stops the sandbox's processes until resume or the next exec. */
  pause(o: CallOptions = {}): Promise<Sandbox> {
    return this.#sandbox({ method: "POST", path: path("threads", this.id, "sandbox", "pause") }, o);
  }

  resume(o: CallOptions = {}): Promise<Sandbox> {
    return this.#sandbox({ method: "POST", path: path("threads", this.id, "sandbox", "resume") }, o);
  }

  /** Ends the sandbox and keeps its files and what it was: the next exec brings it back. */
  hibernate(o: CallOptions = {}): Promise<Sandbox> {
    return this.#sandbox({ method: "POST", path: path("threads", this.id, "sandbox", "hibernate") }, o);
  }

  /** Ends the sandbox; the files stay. */
  async release(o: CallOptions = {}): Promise<void> {
    await this.t.call({ method: "DELETE", path: path("threads", this.id, "sandbox") }, o);
  }

  /** Ends the sandbox and deletes the files. */
  async delete(o: CallOptions = {}): Promise<void> {
    await this.t.call({ method: "DELETE", path: path("threads", this.id) }, o);
  }

  /** Starts an interpreter that keeps its variables between runs. */
  async createContext(options: ContextOptions = {}, o: CallOptions = {}): Promise<Context> {
    const r: Request = { method: "POST", path: path("threads", this.id, "contexts"), body: options };
    return new Context(this, this.t, await this.t.call<CodeContext>(r, { timeoutMs: this.t.waitMs, ...o }));
  }

  /** The contexts of the thread, oldest first, and the newest that were lost. */
  async contexts(o: CallOptions = {}): Promise<Context[]> {
    const { items } = await this.t.call<{ items: CodeContext[] }>({ method: "GET", path: path("threads", this.id, "contexts") }, o);
    return items.map((info) => new Context(this, this.t, info));
  }

  /** The text of a plugin's command, with its arguments put in: ready to be the user's message. */
  async command(plugin: string, command: string, args = "", o: CallOptions = {}): Promise<string> {
    const r: Request = { method: "POST", path: path("threads", this.id, "commands", plugin, command), body: { args } };
    return (await this.t.call<{ message: string }>(r, o)).message;
  }

  /**
   * Attaches a skill's folder of this machine to the thread, as it is now, in place of what was attached under its name. The
   * thread alone has it, in the server's memory. The folder is not needed afterwards.
   */
  async skill(folder: string, o: CallOptions = {}): Promise<AddedSkill> {
    return this.skills.add(await skillOf(folder), o);
  }

  /**
   * The text of the command that a user typed, such as "/sales:call-prep Acme", or the message as it came when it is no
   * command: send every message of a user through it.
   */
  typedCommand(text: string, o: CallOptions = {}): Promise<TypedCommand> {
    return this.t.call({ method: "POST", path: path("threads", this.id, "commands"), body: { text } }, { timeoutMs: this.t.waitMs, ...o });
  }

  /**
   * What happens in the thread, as it happens: behind the event with the id `after`, or from now on. The first event is started, or
   * reset where events are missing: read the thread's state anew. A connection that is lost is made again, and goes on where it
   * was. It ends when the thread is deleted.
   */
  async *events(after = "", o: CallOptions = {}): AsyncGenerator<ThreadEvent, void, void> {
    let failing: number | undefined; // since when no connection was made
    for (;;) {
      const query: Query = after === "" ? {} : { after };
      try {
        for await (const m of this.t.events({ method: "GET", path: path("threads", this.id, "events"), query }, o, this.t.silenceMs)) {
          if (m.event === constants.eventEnd) return;
          failing = undefined;
          after = m.id;
          yield JSON.parse(m.data) as ThreadEvent;
        }
      } catch (err) {
        const settled = err instanceof SkerryError && err.status < 500 && !constants.passingStatuses.includes(err.status);
        failing ??= performance.now();
        if (o.signal?.aborted || settled || performance.now() - failing > Math.max(constants.takeUpForMs, this.t.patienceMs)) throw err;
      }
      await sleep(constants.takeUpPauseMs, o.signal);
    }
  }

  /** What to tell the agent of this thread, and which tools to register with it. */
  prompt(o: CallOptions = {}): Promise<Prompt> {
    return this.t.call({ method: "GET", path: path("threads", this.id, "prompt") }, o);
  }
}

/** An interpreter that keeps its variables between runs. */
export class Context {
  readonly #t: Transport;

  constructor(
    readonly thread: Thread,
    t: Transport,
    /** As it was when it was last asked for. */
    public info: CodeContext,
  ) {
    this.#t = t;
  }

  get id(): string {
    return this.info.context_id;
  }

  async #ask(method: "GET" | "POST", more: string[], o: CallOptions): Promise<CodeContext> {
    const kind = method === "GET" ? "safe" : "once";
    this.info = await this.#t.call<CodeContext>({ method, path: path("threads", this.thread.id, "contexts", this.id, ...more), kind }, o);
    return this.info;
  }

  /** Runs a program text in it, in its language. */
  run(code: string, options: Omit<Code, "code" | "language" | "context_id"> = {}, o: CallOptions = {}): Promise<ExecResult> {
    return this.thread.executeCode({ ...options, code, context_id: this.id }, o);
  }

  /** Asks the server how it is. */
  refresh(o: CallOptions = {}): Promise<CodeContext> {
    return this.#ask("GET", [], o);
  }

  /** Ends the run in it; its variables stay. */
  interrupt(o: CallOptions = {}): Promise<CodeContext> {
    return this.#ask("POST", ["interrupt"], o);
  }

  /** Empties it, or brings a lost one back, empty. */
  restart(o: CallOptions = {}): Promise<CodeContext> {
    return this.#ask("POST", ["restart"], o);
  }

  /** Ends it with all that it started. */
  async delete(o: CallOptions = {}): Promise<void> {
    await this.#t.call({ method: "DELETE", path: path("threads", this.thread.id, "contexts", this.id) }, o);
  }
}

/** The tools of MCP servers that a thread may use. */
export class Tools {
  readonly #t: Transport;

  constructor(
    t: Transport,
    readonly threadId: string,
  ) {
    this.#t = t;
  }

  /** The MCP servers. */
  servers(o: CallOptions = {}): Promise<ToolServers> {
    return this.#t.call({ method: "GET", path: path("threads", this.threadId, "servers") }, o);
  }

  /** Finds tools by what they do. */
  search(query: ToolQuery = {}, o: CallOptions = {}): Promise<ToolSearch> {
    return this.#t.call({ method: "GET", path: path("threads", this.threadId, "tools"), query: { ...query } }, o);
  }

  /** All tools of one MCP server. */
  async of(server: string, o: CallOptions = {}): Promise<Tool[]> {
    return (await this.#t.call<{ items: Tool[] }>({ method: "GET", path: path("threads", this.threadId, "servers", server, "tools") }, o)).items;
  }

  /** Puts the definition of a tool, {server}__{tool}, before the thread's agent until it is put away. A full search does so with the deferred tools that it shows. */
  activate(tool: string, o: CallOptions = {}): Promise<Tool> {
    return this.#t.call({ method: "PUT", path: path("threads", this.threadId, "tools", "active", tool) }, o);
  }

  /** Takes a tool out of the active ones, which ThreadInfo lists. */
  async putAway(tool: string, o: CallOptions = {}): Promise<void> {
    await this.#t.call({ method: "DELETE", path: path("threads", this.threadId, "tools", "active", tool) }, o);
  }

  /**
   * Calls a tool by its name, {server}__{tool}. An error of the tool itself is a result with is_error. It may wait for an
   * approval, so it takes as long as `waitMs`. With `content` the result has the MCP server's own blocks, too: images, say.
   */
  call(tool: string, input: object = {}, { content, ...o }: CallOptions & { content?: boolean } = {}): Promise<ToolResult> {
    const body = { tool, input, ...(content === true ? { content } : {}) };
    const r: Request = { method: "POST", path: path("threads", this.threadId, "tools", "call"), body, kind: "once" };
    return this.#t.call(r, { timeoutMs: this.#t.waitMs, ...o });
  }
}

/** The skills of a thread. */
export class ThreadSkills {
  readonly #t: Transport;

  constructor(
    t: Transport,
    readonly threadId: string,
  ) {
    this.#t = t;
  }

  #path(...more: string[]): string {
    return path("threads", this.threadId, "skills", ...more);
  }

  /** Finds skills by what they are for; all of them without a query. */
  async search(query?: string, o: CallOptions = {}): Promise<SkillFound[]> {
    return (await this.#t.call<{ skills: SkillFound[] }>({ method: "GET", path: this.#path(), query: { query } }, o)).skills;
  }

  /** The text of a skill for the agent, and what is in its folder. */
  activate(name: string, o: CallOptions = {}): Promise<ActiveSkill> {
    return this.#t.call({ method: "POST", path: this.#path(name, "activate") }, o);
  }

  /** One file of a skill. */
  file(name: string, file: string, o: CallOptions = {}): Promise<SkillFile> {
    return this.#t.call({ method: "GET", path: this.#path(name, "files"), query: { path: file } }, o);
  }

  /** Gives the thread a skill of its own. */
  add(skill: VirtualSkill, o: CallOptions = {}): Promise<AddedSkill> {
    return this.#t.call({ method: "POST", path: this.#path(), body: skill }, o);
  }

  /** Takes away a skill of `add`. */
  async remove(name: string, o: CallOptions = {}): Promise<void> {
    await this.#t.call({ method: "DELETE", path: this.#path(name) }, o);
  }

  /** Installs a .skill file that lies in the thread. */
  install(file: string, o: CallOptions = {}): Promise<SkillInstalled> {
    return this.#t.call({ method: "POST", path: path("skills", "install"), body: { thread_id: this.threadId, path: file } }, o);
  }
}
