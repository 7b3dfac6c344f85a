import * as constants from "./constants.js";
import { warnDeprecated } from "./deprecated.js";
import { ConnectionError, DeadlineError, errorFrom, LostError, SkerryError } from "./errors.js";
import type { ErrorCode, Problem } from "./models.js";
import { Repeats, type Kind } from "./repeat.js";
import { messages, type Message } from "./sse.js";
import type { SocketConstructor } from "./terminal.js";

/** Options of a client. */
export interface Options {
  /** Address of the server; SKERRY_SERVER when absent or empty, else `http://127.0.0.1:8080`. */
  server?: string;
  /** A key of the server, or a token of its identity provider. SKERRY_API_KEY when absent; an empty one: none is sent. */
  key?: string;
  /** The user that requests are for; the key has to have that right. */
  onBehalfOf?: string;
  /** Most milliseconds of a call; 120000 when absent. */
  timeoutMs?: number;
  /** How many milliseconds a request that failed is sent again; 30000 when absent, 0: never. */
  patienceMs?: number;
  /** A stream, upload or download of which nothing came for so many milliseconds is given up; 60000 when absent. */
  silenceMs?: number;
  /** How many milliseconds a run may take to begin (a place, a sandbox, an approval), and a tool to answer. 600000 when absent; Node's fetch gives up after 300000. */
  waitMs?: number;
  /** In place of the global fetch. */
  fetch?: typeof fetch;
  /** In place of the global WebSocket, for terminals; Node 20 has none. */
  webSocket?: SocketConstructor;
}

/** A variable of the environment; undefined where there is none, as in browsers, or where it may not be read. */
function fromEnvironment(name: string): string | undefined {
  try {
    const { process } = globalThis as { process?: { env?: Record<string, string | undefined> } };
    return process?.env?.[name];
  } catch {
    return undefined; // Deno without --allow-env
  }
}

/** What every call takes. */
export interface CallOptions {
  /** Ends the call. */
  signal?: AbortSignal;
  /** Most milliseconds of this call, in place of the client's. */
  timeoutMs?: number;
}

/** What can be sent as a file's bytes. A ReadableStream is sent once, the others again when needed. */
export type Bytes = string | Uint8Array | ArrayBuffer | Blob | ReadableStream<Uint8Array>;

export type Query = Record<string, string | number | boolean | string[] | undefined>;

/** Any request of the API. */
export interface Request {
  method: "GET" | "POST" | "PUT" | "DELETE";
  /** `/api/…`, with its parts escaped: see `path`. */
  path: string;
  query?: Query;
  /** Sent as JSON. */
  body?: unknown;
  /** Sent as it is, in place of body. */
  content?: Bytes | FormData;
  headers?: Record<string, string>;
  /** `keyed` for a POST, else `safe`, when absent. */
  kind?: Kind;
}

/** Joins parts of a path, escaped. */
export function path(...parts: string[]): string {
  return "/api/" + parts.map(encodeURIComponent).join("/");
}

/** Sends requests, with the rules of what is sent again, and deadlines. */
export class Transport {
  readonly server: string;
  readonly timeoutMs: number;
  readonly patienceMs: number;
  readonly silenceMs: number;
  readonly waitMs: number;
  readonly headers: Record<string, string>;
  readonly webSocket: SocketConstructor | undefined;
  readonly #fetch: typeof fetch;

  constructor(o: Options) {
    const server = o.server || fromEnvironment("SKERRY_SERVER") || "http://127.0.0.1:8080";
    const key = o.key ?? fromEnvironment("SKERRY_API_KEY");
    this.server = (server.includes("://") ? server : `http://${server}`).replace(/\/+$/, "");
    this.timeoutMs = o.timeoutMs ?? constants.defaultTimeoutMs;
    this.patienceMs = o.patienceMs ?? constants.defaultPatienceMs;
    this.silenceMs = o.silenceMs ?? constants.defaultSilenceMs;
    this.waitMs = o.waitMs ?? constants.defaultWaitMs;
    this.#fetch = o.fetch ?? fetch.bind(globalThis);
    this.webSocket = o.webSocket;
    this.headers = {
      ...(key ? { Authorization: `Bearer ${key}` } : {}),
      ...(o.onBehalfOf ? { [constants.headerOnBehalfOf]: o.onBehalfOf } : {}),
    };
  }

  /** Sends a request and gives its answer, which is JSON; undefined when it is empty. */
  async call<T>(r: Request, o: CallOptions = {}): Promise<T> {
    return this.#within(o.timeoutMs ?? this.timeoutMs, o.signal, async (signal) => {
      const text = await (await this.send(r, signal)).text();
      return (text === "" ? undefined : JSON.parse(text)) as T;
    });
  }

  /** Runs do with a signal that ends with the caller's, or after so many milliseconds. */
  async #within<T>(ms: number, outer: AbortSignal | undefined, run: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const own = new AbortController();
    const timer = setTimeout(() => own.abort(new DeadlineError(`no answer within ${ms} ms`)), ms);
    try {
      return await run(outer === undefined ? own.signal : AbortSignal.any([own.signal, outer]));
    } finally {
      clearTimeout(timer);
    }
  }

  /** Sends a request until an answer comes that counts: one with a status below 400. */
  async send(r: Request, signal: AbortSignal): Promise<Response> {
    const once = r.content instanceof ReadableStream;
    const kind = once ? "once" : (r.kind ?? (r.method === "POST" && r.content === undefined ? "keyed" : "safe"));
    const tries = new Repeats(kind, this.patienceMs);
    for (;;) {
      signal.throwIfAborted();
      let failed: unknown;
      try {
        const answer = await this.#fetch(this.#address(r), this.#init(r, tries, signal));
        warnDeprecated(r.method, r.path, answer.headers);
        if (answer.status < 400) return answer;
        failed = await errorFrom(answer);
      } catch (err) {
        if (signal.aborted) throw aborted(signal, kind);
        failed = err;
      }
      if (r.method === "DELETE" && tries.lost && failed instanceof SkerryError && failed.code === "not_found") {
        return new Response(null, { status: 204 }); // the first one did it, and its answer was lost
      }
      const pause = tries.pause(failed);
      if (pause === undefined || once) throw tries.final(failed);
      await sleep(pause, signal);
    }
  }

  #address(r: Request): string {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(r.query ?? {})) {
      for (const one of Array.isArray(value) ? value : [value]) {
        if (one !== undefined) query.append(name, String(one));
      }
    }
    return this.server + r.path + (query.size > 0 ? `?${query}` : "");
  }

  #init(r: Request, tries: Repeats, signal: AbortSignal): RequestInit {
    const headers: Record<string, string> = { ...this.headers, ...tries.headers(), ...r.headers };
    const init: RequestInit & { duplex?: "half" } = { method: r.method, headers, signal, redirect: "error" };
    if (r.content !== undefined) {
      init.body = r.content as BodyInit;
      if (!(r.content instanceof FormData)) headers["Content-Type"] = "application/octet-stream";
      if (r.content instanceof ReadableStream) init.duplex = "half";
    } else if (r.body !== undefined) {
      headers["Content-Type"] = "application/json";
      init.body = JSON.stringify(r.body);
    }
    return init;
  }

  /** Sends a request whose answer lasts as long as something comes of it. `begins` is for its first byte. */
  async open(r: Request, o: CallOptions, begins = this.timeoutMs): Promise<{ answer: Response; chunks: AsyncGenerator<Uint8Array, void, void> }> {
    const silence = new Silence(begins, o.signal);
    try {
      const answer = await this.send(r, silence.signal);
      return { answer, chunks: heard(answer, silence, this.silenceMs) };
    } catch (err) {
      silence.stop();
      throw err;
    }
  }

  /** Sends a request whose answer is a stream of events. */
  async *events(r: Request, o: CallOptions, begins: number): AsyncGenerator<Message, void, void> {
    const { chunks } = await this.open({ ...r, headers: { ...r.headers, Accept: "text/event-stream" } }, o, begins);
    try {
      for await (const m of messages(chunks)) {
        if (m.event === constants.eventError) throw streamError(m.data);
        yield m;
      }
    } finally {
      await chunks.return();
    }
    throw new ConnectionError("the stream ended early");
  }
}

function streamError(data: string): SkerryError {
  const p = JSON.parse(data) as Partial<Problem>;
  return new SkerryError({ ...p, status: p.status ?? 500, code: p.code ?? ("internal" as ErrorCode), detail: p.detail ?? "the stream failed" });
}

function aborted(signal: AbortSignal, kind: Kind): unknown {
  const why: unknown = signal.reason;
  return kind === "once" && why instanceof DeadlineError ? new LostError(why) : why;
}

/** Ends a request of which nothing is heard for too long. */
class Silence {
  readonly #own = new AbortController();
  readonly signal: AbortSignal;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(ms: number, outer: AbortSignal | undefined) {
    this.signal = outer === undefined ? this.#own.signal : AbortSignal.any([this.#own.signal, outer]);
    this.expect(ms);
  }

  expect(ms: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#own.abort(new DeadlineError(`nothing came from the server for ${ms} ms`)), ms);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }
}

/** The bytes of an answer. Whoever stops reading lets the connection go. */
async function* heard(answer: Response, silence: Silence, ms: number): AsyncGenerator<Uint8Array, void, void> {
  const reader = answer.body?.getReader();
  try {
    for (;;) {
      silence.expect(ms);
      const part = await reader?.read();
      if (part === undefined || part.done) return;
      yield part.value;
    }
  } catch (err) {
    throw silence.signal.aborted ? silence.signal.reason : new ConnectionError(err instanceof Error ? err.message : String(err), { cause: err });
  } finally {
    silence.stop();
    reader?.cancel().catch(() => undefined); // it may have ended by itself
  }
}

/** Waits, unless the signal ends it. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal?.addEventListener("abort", stop, { once: true });
    if (signal?.aborted) stop();
  });
}
