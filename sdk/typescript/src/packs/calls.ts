import { Outbox } from "./outbox.js";
import { answer, type Call, type Log, type Pack } from "./pack.js";
import { textResult, type Result } from "./result.js";
import { ToolError_Code, type ExecuteToolRequest, type Welcome, type Window } from "./v1/packs_pb.js";

const defaultParallel = 16;
/** Messages that wait to be sent, from which on progress is left out. */
const manyMessages = 1000;
const longestTimer = 2 ** 31 - 1; // milliseconds

/** A call under way. */
interface Running {
  readonly abort: AbortController;
  /** Bytes of the result that the server takes. */
  window: number;
  /** The server takes no answer any more. */
  cancelled: boolean;
  /** It takes no place any more. */
  free: boolean;
}

/** The calls that run in this program, of all streams of one `serve`. */
export interface Places {
  taken: number;
}

/** The calls of one stream, and its windows. */
export class Calls {
  draining = false;
  readonly #pack: Pack;
  readonly #places: Places;
  readonly #outbox: Outbox;
  readonly #limits: Welcome;
  readonly #log: Log;
  readonly #running = new Map<bigint, Running>();
  readonly #ends = new Set<Promise<void>>();
  #window: number; // bytes of results that the server takes, of all calls
  #wider: (() => void)[] = [];

  constructor(pack: Pack, places: Places, outbox: Outbox, limits: Welcome, log: Log) {
    this.#pack = pack;
    this.#places = places;
    this.#outbox = outbox;
    this.#limits = limits;
    this.#log = log;
    this.#window = Number(limits.connectionWindow);
  }

  /** Runs a call, or says why it does not. */
  begin(r: ExecuteToolRequest): void {
    const most = this.#pack.options.maxParallel ?? defaultParallel;
    if (this.draining) {
      this.#fail(r.requestId, ToolError_Code.DRAINING, "the pack stops");
    } else if (this.#places.taken >= 2 * most) {
      // The server does not wait for calls that it has cancelled.
      this.#fail(r.requestId, ToolError_Code.BUSY, "calls of tools that do not end take all places");
    } else {
      const end = this.#run(r).finally(() => this.#ends.delete(end));
      this.#ends.add(end);
    }
  }

  async #run(r: ExecuteToolRequest): Promise<void> {
    const call: Running = { abort: new AbortController(), window: Number(this.#limits.callWindow), cancelled: false, free: false };
    const ms = Number(r.timeoutMs);
    const late = ms > 0 ? setTimeout(() => call.abort.abort(new DOMException("the call's deadline has passed", "TimeoutError")), Math.min(ms, longestTimer)) : undefined;
    this.#running.set(r.requestId, call);
    this.#places.taken++;
    try {
      await this.#execute(r, call);
    } finally {
      this.#free(call);
      this.#running.delete(r.requestId);
      clearTimeout(late);
    }
  }

  /** Frees the place of a call, once: before the last message, because the server's next call may come at once. */
  #free(call: Running): void {
    if (call.free) return;
    call.free = true;
    this.#places.taken--;
  }

  async #execute(r: ExecuteToolRequest, call: Running): Promise<void> {
    const tool = this.#pack.find(r.toolName);
    if (tool === undefined) {
      this.#fail(r.requestId, ToolError_Code.UNKNOWN_TOOL, "the pack has no such tool");
      return;
    }
    let over = false;
    const seen: Call = {
      caller: { tenant: r.context?.tenant ?? "", user: r.context?.user ?? "", thread: r.context?.thread ?? "" },
      signal: call.abort.signal,
      progress: (done, total = 0, message = "") => {
        if (over || call.cancelled || this.#outbox.length > manyMessages) return;
        void this.#outbox.put({ case: "progress", value: { requestId: r.requestId, progress: done, total, message } });
      },
    };
    let result: Result;
    try {
      const input: unknown = r.inputJson.length === 0 ? {} : JSON.parse(new TextDecoder().decode(r.inputJson));
      result = await answer(tool, input, seen, this.#log);
    } catch (err) {
      result = textResult(`the arguments cannot be read: ${String(err)}`, true);
    }
    over = true;
    await this.#reply(r.requestId, call, encoded(result, Number(this.#limits.maxResultBytes)));
  }

  #fail(requestId: bigint, code: ToolError_Code, message: string): void {
    void this.#outbox.put({ case: "result", value: { requestId, last: true, error: { code, message } } });
  }

  /** Sends a result in parts, as far as the windows let it. */
  async #reply(requestId: bigint, call: Running, bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    const most = this.#limits.maxPartBytes > 0 ? this.#limits.maxPartBytes : bytes.length; // else the windows alone bound a part
    for (let at = 0; at < bytes.length; ) {
      const n = await this.#claim(call, Math.min(bytes.length - at, most));
      if (n === 0) return; // the server does not wait for it any more
      const part = bytes.subarray(at, at + n);
      at += n;
      if (at === bytes.length) this.#free(call);
      if (!(await this.#outbox.put({ case: "result", value: { requestId, part, last: at === bytes.length } }))) return;
    }
  }

  /** Takes up to most bytes from the windows, and waits while there are none. 0: the call has ended. */
  async #claim(call: Running, most: number): Promise<number> {
    for (;;) {
      if (call.cancelled) return 0;
      const n = Math.min(most, call.window, this.#window);
      if (n > 0) {
        call.window -= n;
        this.#window -= n;
        return n;
      }
      if (call.abort.signal.aborted) return 0;
      await new Promise<void>((wake) => {
        this.#wider.push(wake);
        call.abort.signal.addEventListener("abort", () => wake(), { once: true });
      });
    }
  }

  widen(w: Window): void {
    const call = this.#running.get(w.requestId);
    if (w.requestId === 0n) this.#window += Number(w.bytes);
    else if (call !== undefined) call.window += Number(w.bytes);
    for (const wake of this.#wider.splice(0)) wake();
  }

  /** The server takes no answer to a call any more. */
  cancel(requestId: bigint, reason: string): void {
    const call = this.#running.get(requestId);
    if (call === undefined) return;
    call.cancelled = true;
    call.abort.abort(new DOMException(reason || "the caller has given up", "AbortError"));
  }

  /** Aborts all calls. */
  lose(why: string): void {
    for (const id of [...this.#running.keys()]) this.cancel(id, why);
  }

  /** Waits until no call runs. */
  async idle(): Promise<void> {
    while (this.#ends.size > 0) await Promise.all(this.#ends);
  }
}

/** A result as it is sent. */
function encoded(result: Result, most: number): Uint8Array<ArrayBuffer> {
  const write = (r: Result) => new TextEncoder().encode(JSON.stringify(r));
  let failed: string;
  try {
    const bytes = write(result);
    if (bytes.length <= most) return bytes;
    failed = `the result has ${bytes.length} bytes, and the server takes at most ${most}`;
  } catch (err) {
    failed = `the result cannot be written: ${String(err)}`;
  }
  return write(textResult(failed, true));
}
