import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport, Http2SessionManager } from "@connectrpc/connect-node";
import { Calls } from "./calls.js";
import { Outbox } from "./outbox.js";
import { messageOf, type Pack } from "./pack.js";
import type { Server } from "./serve.js";
import { PackService, type ServerMessage } from "./v1/packs_pb.js";

/** Heartbeats without any message after which the server is gone. */
const silentBeats = 3;
const dialMs = 10_000;
const maxMessage = 8 << 20; // bytes of a message of the server

/** Makes a connection the one of its pack, or ends that. `by` is the connection that asks. */
export type Attach = (now: Connection | undefined, by: Connection) => void;

/** One HTTP/2 connection. Its requests name the server as packs do in what they sign. */
class Session extends Http2SessionManager {
  readonly #host: string;

  constructor(server: Server) {
    super(server.url, undefined, { ...server.tls });
    this.#host = server.url.host;
  }

  override request(...[method, path, headers, options]: Parameters<Http2SessionManager["request"]>): ReturnType<Http2SessionManager["request"]> {
    return super.request(method, path, { ...headers, ":authority": this.#host }, options);
  }
}

/** One stream to a server, over a connection of its own. */
export class Connection {
  /** The server has taken the pack. */
  welcomed = false;
  /** `run` has ended. */
  over = false;
  /** Resolves when the server stops. Other servers go on, and this one sends calls until one of them has the pack. */
  readonly leaves: Promise<void>;
  readonly #pack: Pack;
  readonly #server: Server;
  readonly #session: Session;
  readonly #outbox = new Outbox();
  readonly #end = new AbortController();
  readonly #timers: ReturnType<typeof setTimeout>[] = [];
  #reloads: { resolve: () => void; reject: (why: Error) => void }[] = [];
  #silent = 0; // heartbeats since the last message
  #leave: () => void = () => undefined;
  #calls: Calls | undefined; // while the server has the pack

  constructor(pack: Pack, server: Server) {
    this.#pack = pack;
    this.#server = server;
    this.#session = new Session(server);
    this.leaves = new Promise((resolve) => (this.#leave = resolve));
  }

  /**
   * Connects, and serves until the stream ends, which is an error, or until it is drained because `stop` is aborted.
   * `old` is the connection that this one replaces.
   */
  async run(stop: AbortSignal, attach: Attach, old?: Connection): Promise<void> {
    const leave = () => this.#end.abort(stop.reason);
    try {
      stop.throwIfAborted();
      stop.addEventListener("abort", leave); // until the handshake is done
      const messages = this.#open();
      this.#calls = await this.#handshake(messages);
      stop.removeEventListener("abort", leave);
      attach(this, this);
      void old?.drain();
      this.#server.connected();
      await this.#serve(messages, this.#calls, stop);
    } catch (err) {
      if (!stop.aborted) throw this.#end.signal.aborted ? this.#end.signal.reason : err;
    } finally {
      this.over = true;
      stop.removeEventListener("abort", leave);
      attach(undefined, this);
      this.#close();
    }
  }

  #open(): AsyncIterator<ServerMessage> {
    const server = this.#server;
    const transport = createConnectTransport({ baseUrl: server.baseUrl, httpVersion: "2", sessionManager: this.#session, readMaxBytes: maxMessage });
    const client = createClient(PackService, transport);
    return client.connect(this.#outbox, { signal: this.#end.signal, headers: server.credential.headers?.() ?? {} })[Symbol.asyncIterator]();
  }

  async #handshake(messages: AsyncIterator<ServerMessage>): Promise<Calls> {
    const { instance, url, credential } = this.#server;
    const pack = this.#pack;
    const late = this.#after(dialMs, () => this.#end.abort(new Error(`the server does not answer within ${dialMs} ms`)));
    void this.#outbox.put({ case: "open", value: { packId: pack.id, instance, address: url.host } });
    const challenge = (await next(messages)).message;
    if (challenge.case !== "challenge") throw new Error("the server sent no challenge");
    let signature: Uint8Array<ArrayBuffer> | undefined;
    try {
      signature = await credential.sign?.(challenge.value, pack.id, url.host);
    } catch (err) {
      throw new ConnectError(`the challenge cannot be signed: ${messageOf(err)}`, Code.Unauthenticated);
    }
    void this.#outbox.put({ case: "register", value: { manifest: pack.manifest(), ...(signature === undefined ? {} : { signature }) } });
    const welcome = (await next(messages)).message;
    if (welcome.case !== "welcome") throw new Error("the server sent no welcome");
    clearTimeout(late);
    this.welcomed = true;
    this.#beat(Math.max(welcome.value.heartbeatSeconds, 1) * 1000);
    return new Calls(pack, this.#server.places, this.#outbox, welcome.value, this.#server.log);
  }

  /** Takes in messages until the stream ends. */
  async #serve(messages: AsyncIterator<ServerMessage>, calls: Calls, stop: AbortSignal): Promise<void> {
    const drain = () => void this.drain();
    stop.addEventListener("abort", drain);
    try {
      if (stop.aborted) drain();
      for (;;) {
        const { message } = await next(messages);
        this.#silent = 0;
        if (message.case === "drain") this.#leave();
        else this.#take(message, calls);
      }
    } finally {
      stop.removeEventListener("abort", drain);
    }
  }

  #take(message: ServerMessage["message"], calls: Calls): void {
    switch (message.case) {
      case "execute":
        if (message.value.request !== undefined) calls.begin(message.value.request);
        break;
      case "cancel":
        calls.cancel(message.value.requestId, message.value.reason);
        break;
      case "window":
        calls.widen(message.value);
        break;
      case "reloadResult": {
        const { error } = message.value;
        const waiting = this.#reloads.shift();
        if (error === "") waiting?.resolve();
        else waiting?.reject(new Error(`the server refuses the tools: ${error}`));
      }
    }
  }

  /** Sends the manifest, and waits for the answer. Answers come in the order of the messages. */
  reload(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#reloads.push({ resolve, reject });
      void this.#outbox.put({ case: "reload", value: { manifest: this.#pack.manifest() } });
    });
  }

  /** Takes no new calls, waits for those that run, and closes the stream. */
  async drain(): Promise<void> {
    const calls = this.#calls;
    if (calls === undefined || calls.draining || this.over) return;
    calls.draining = true;
    void this.#outbox.put({ case: "drain", value: {} });
    await Promise.race([calls.idle(), new Promise<void>((late) => this.#after(this.#server.drainMs, late))]);
    this.#outbox.end();
    this.#after(dialMs, () => this.#end.abort(new Error("the server does not end the stream")));
  }

  /** Sends heartbeats, and ends a stream on which the server is silent. */
  #beat(everyMs: number): void {
    let waiting = false;
    this.#timers.push(
      setInterval(() => {
        // Counted, and not timed: a tool that computes for long keeps this program from hearing the server.
        if (this.#silent++ >= silentBeats) this.#end.abort(new Error(`the server was silent for ${silentBeats} heartbeats`));
        if (waiting) return; // the server does not read
        waiting = true;
        void this.#outbox.put({ case: "heartbeat", value: {} }).then(() => (waiting = false));
      }, everyMs),
    );
  }

  #after(ms: number, then: () => void): ReturnType<typeof setTimeout> {
    const timer = setTimeout(then, ms);
    this.#timers.push(timer);
    return timer;
  }

  #close(): void {
    for (const timer of this.#timers) clearTimeout(timer);
    this.#calls?.lose("the connection was lost");
    for (const waiting of this.#reloads.splice(0)) waiting.reject(new Error("the connection was lost"));
    this.#outbox.drop();
    this.#end.abort();
    this.#session.abort();
  }
}

async function next(messages: AsyncIterator<ServerMessage>): Promise<ServerMessage> {
  const got = await messages.next();
  if (got.done === true) throw new Error("the server has ended the stream");
  return got.value;
}
