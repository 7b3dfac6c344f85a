import { sentFrame } from "./constants.js";
import { ConnectionError, SkerryError } from "./errors.js";
import type { ExecStatus } from "./models.js";
import { path, type CallOptions, type Transport } from "./transport.js";

const mostHeld = 64 << 20; // bytes that came and nobody took

/** The part of a WebSocket that is used. The runtimes take headers in the second argument, browsers do not. */
export interface Socket {
  binaryType: string;
  send(data: string | Uint8Array): void;
  close(code?: number): void;
  addEventListener(type: "open" | "close" | "error" | "message", take: (event: { data?: unknown; reason?: string }) => void): void;
}

/** What makes a WebSocket: the global one of Node ≥ 22, bun and deno, or one that is given. */
export type SocketConstructor = new (url: string, options: { headers: Record<string, string> }) => Socket;

/** How the program of a terminal ended; `result` of its exec has the whole. */
export interface TerminalExit {
  exec_id: string;
  status: ExecStatus;
  exit_code: number | null;
  duration_ms: number;
}

/** Bytes to and from the terminal of an exec. Iterating over it gives what it shows, until its program ends. To close it never ends the exec. */
export class Terminal implements AsyncIterable<Uint8Array> {
  /** Number of the next event: one who was cut off joins again with `after: next - 1`. */
  next = 1;
  /** How its program ended, when it has. */
  exit: TerminalExit | undefined;
  readonly #socket: Socket;
  readonly #came: (Uint8Array | string)[] = [];
  #held = 0;
  #ended: Error | undefined;
  #wake: () => void = () => undefined;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.addEventListener("message", ({ data }) => {
      const frame = typeof data === "string" ? data : new Uint8Array(data as ArrayBuffer);
      this.#held += frame.length;
      this.#came.push(frame);
      if (this.#held > mostHeld) this.#end(new ConnectionError("the terminal showed more than was taken of it"));
      this.#wake();
    });
    socket.addEventListener("close", ({ reason }) => this.#end(new ConnectionError(`the terminal was cut off before event ${this.next}: ${reason ?? ""}`)));
  }

  /** Joins the terminal of an exec. */
  static async join(t: Transport, thread: string, exec: string, after: number, o: CallOptions): Promise<Terminal> {
    const Socket = t.webSocket ?? (globalThis as unknown as { WebSocket?: SocketConstructor }).WebSocket;
    if (Socket === undefined) throw new ConnectionError("this runtime has no WebSocket: Node 20 has one with --experimental-websocket, or give one as the option webSocket");
    const where = path("threads", thread, "pty");
    const query = { exec, ...(after > 0 ? { after: String(after) } : {}) };
    const socket = new Socket(`${t.server.replace(/^http/, "ws")}${where}?${new URLSearchParams(query)}`, { headers: t.headers });
    socket.binaryType = "arraybuffer";
    const terminal = new Terminal(socket);
    let timer: ReturnType<typeof setTimeout> | undefined;
    const stop = () => socket.close();
    o.signal?.addEventListener("abort", stop, { once: true });
    const open = await new Promise<boolean>((resolve) => {
      socket.addEventListener("open", () => resolve(true));
      socket.addEventListener("error", () => resolve(false));
      socket.addEventListener("close", () => resolve(false));
      timer = setTimeout(() => resolve(false), o.timeoutMs ?? t.timeoutMs);
      if (o.signal?.aborted) resolve(false);
    });
    clearTimeout(timer);
    if (open) return terminal;
    socket.close();
    o.signal?.throwIfAborted();
    // A WebSocket does not say what the server answered. What is wrong with the key, the thread or the exec, asking for the exec says.
    const why: unknown = await t.call({ method: "GET", path: path("threads", thread, "execs", exec) }, o).catch((err: unknown) => err);
    throw why instanceof SkerryError ? why : new ConnectionError("the terminal cannot be joined: the exec may have none");
  }

  #end(why: Error): void {
    this.#ended ??= why;
    this.#wake();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, void> {
    while (this.exit === undefined) {
      const frame = this.#came.shift();
      if (frame === undefined) {
        if (this.#ended !== undefined) throw this.#ended;
        await new Promise<void>((resolve) => (this.#wake = resolve));
        continue;
      }
      this.#held -= frame.length;
      if (typeof frame !== "string") {
        this.next++;
        yield frame;
        continue;
      }
      const said = JSON.parse(frame) as { next?: number; exit?: TerminalExit };
      this.next = said.next ?? this.next;
      this.exit = said.exit;
    }
  }

  /** Types. */
  write(data: string | Uint8Array): void {
    const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
    for (let at = 0; at < bytes.length; at += sentFrame) this.#socket.send(bytes.subarray(at, at + sentFrame));
  }

  /** Says how large it is now, 1 to 1000 each. */
  resize(cols: number, rows: number): void {
    this.#socket.send(JSON.stringify({ resize: { cols, rows } }));
  }

  close(): void {
    this.#socket.close();
  }
}
