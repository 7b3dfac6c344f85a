import { randomBytes } from "node:crypto";
import type { SecureContextOptions } from "node:tls";
import { Code, ConnectError } from "@connectrpc/connect";
import { sleep } from "../transport.js";
import type { Places } from "./calls.js";
import { Connection, type Attach } from "./connection.js";
import type { Credential } from "./credential.js";
import { messageOf, type Log, type Pack } from "./pack.js";

const firstPauseMs = 100;
const longestPauseMs = 10_000;
const longestMoveMs = 1000; // while the server that stops still has the pack
const pauseSpread = 4; // a pause is longer by up to one part of so many
const defaultDrainMs = 30_000;
const idBytes = 12;

/** Where a pack connects to, and as whom. */
export interface ServeOptions {
  /** Address of the server's API, such as `https://skerry.example.com`. */
  server: string;
  /** Proves who the pack is. Absent: nothing does, which only a server without keys takes. */
  credential?: Credential;
  /** For https: authorities in place of the system's, and the certificate and key of the pack. */
  tls?: Pick<SecureContextOptions, "ca" | "cert" | "key" | "passphrase">;
  /** Aborted: the pack takes no new calls, ends those that run, and `serve` returns. */
  signal?: AbortSignal;
  /** How long calls may go on after that; 30000 when absent. */
  drainMs?: number;
  /** Gets connections and their ends; standard error when absent. */
  log?: Log;
  /** Is called each time the server has taken the pack. */
  connected?: () => void;
}

/** Options of one `serve`, complete. */
export interface Server {
  readonly url: URL;
  readonly baseUrl: string;
  readonly instance: string;
  readonly credential: Credential;
  readonly tls: NonNullable<ServeOptions["tls"]>;
  readonly drainMs: number;
  readonly log: Log;
  readonly places: Places;
  connected(): void;
}

const standardError: Log = {
  info: (text) => console.error(text),
  warn: (text) => console.error(text),
  error: (text, err) => console.error(text, err),
};

function complete(pack: Pack, o: ServeOptions): Server {
  const url = URL.canParse(o.server) ? new URL(o.server) : undefined;
  if (url === undefined || (url.protocol !== "http:" && url.protocol !== "https:")) throw new Error(`${o.server} is not the URL of a server`);
  const log = o.log ?? standardError;
  return {
    url,
    baseUrl: o.server.replace(/\/+$/, ""),
    instance: randomBytes(idBytes).toString("hex"),
    credential: o.credential ?? {},
    tls: o.tls ?? {},
    drainMs: o.drainMs ?? defaultDrainMs,
    log,
    places: { taken: 0 },
    connected: () => {
      log.info(`pack ${pack.id}: connected to ${url.origin}`);
      o.connected?.();
    },
  };
}

/** Serves a pack until the signal is aborted, or the server refuses it: then the error's cause is a ConnectError. */
export async function serve(pack: Pack, options: ServeOptions, attach: Attach, refused: (code: Code, welcomed: boolean) => boolean = refuses): Promise<void> {
  const server = complete(pack, options);
  const stop = options.signal ?? new AbortController().signal;
  const running = new Set<Promise<unknown>>(); // connections; those to servers that stop go on for a while
  let old: Connection | undefined; // to a server that stops, until another one takes the pack
  let welcomed = false;
  let tries = 0;
  try {
    while (!stop.aborted) {
      const connection = new Connection(pack, server);
      const end = connection.run(stop, attach, old).catch((err: unknown) => ConnectError.from(err));
      running.add(end);
      void end.then(() => running.delete(end));
      const leaves = connection.leaves.then(() => "leaves" as const);
      const why = await Promise.race([end, leaves]);
      if (why === undefined) return;
      if (connection.welcomed) {
        old = undefined;
        welcomed = true;
        tries = 0;
      }
      if (why === "leaves") {
        old = connection;
        continue;
      }
      if (refused(why.code, welcomed)) throw new Error(`the server refuses the pack ${pack.id}: ${why.rawMessage}`, { cause: why });
      const longest = old?.over === false ? longestMoveMs : longestPauseMs;
      const pause = Math.min(firstPauseMs * 2 ** tries++, longest) * (1 + Math.random() / pauseSpread);
      server.log.warn(`pack ${pack.id}: not connected, and tried again in ${Math.round(pause)} ms: ${messageOf(why)}`);
      await sleep(pause, stop).catch(() => undefined); // it was aborted
    }
  } finally {
    await Promise.all(running);
  }
}

/** Whether another try has no use. A server that took the pack before may take it again. */
function refuses(code: Code, welcomed: boolean): boolean {
  switch (code) {
    case Code.InvalidArgument:
    case Code.Unimplemented:
      return true;
    case Code.Unauthenticated:
    case Code.PermissionDenied:
      return !welcomed;
    default:
      return false;
  }
}
