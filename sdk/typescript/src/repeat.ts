import * as constants from "./constants.js";
import { ConnectionError, LostError, SkerryError } from "./errors.js";

/**
 * Whether a request may be done twice.
 * - `safe`: twice is as good as once: reading, writing a file whole, deleting.
 * - `keyed`: it goes with an Idempotency-Key, by which the server answers a second one as it did the first.
 * - `once`: it is sent again only when nothing was done: no connection was made, or the server says so.
 */
export type Kind = "safe" | "keyed" | "once";

/** The tries at one call. */
export class Repeats {
  readonly key = crypto.randomUUID();
  /** The server may have done it: an answer got lost. */
  lost = false;
  #tries = 0;
  readonly #began = performance.now();

  constructor(
    readonly kind: Kind,
    readonly patienceMs: number,
  ) {}

  /** The headers that make a second request known as one. */
  headers(): Record<string, string> {
    if (this.kind !== "keyed") return {};
    const age = (Math.min(performance.now() - this.#began + 1, constants.maxRetryAgeMs) / 1000).toFixed(3);
    return { [constants.headerIdempotencyKey]: this.key, ...(this.#tries > 0 ? { [constants.headerIdempotencyAge]: age } : {}) };
  }

  /** How long to wait before the next try, or undefined when there is none. */
  pause(err: unknown): number | undefined {
    if (!this.#worthIt(err)) return undefined;
    const backoff = Math.min(constants.firstPauseMs * 2 ** this.#tries, constants.longestPauseMs) * (1 + Math.random() / constants.pauseSpread);
    this.#tries++;
    const pause = Math.max(backoff, err instanceof SkerryError ? err.retryAfterMs : 0);
    return performance.now() - this.#began + pause > this.patienceMs ? undefined : pause;
  }

  /** Whether another try may end otherwise and harms nothing. */
  #worthIt(err: unknown): boolean {
    if (!(err instanceof SkerryError)) {
      if (notConnected(err)) return true;
      this.lost = true;
      return this.kind !== "once";
    }
    if (err.notStarted || err.code === "capacity_exceeded" || err.status === 429) {
      // Nothing was done. Of a limit that no waiting changes the server does not say when to come back.
      return err.retryAfterMs > 0;
    }
    if (keyConflict(err) === constants.keyRunning) return true; // when the first one has ended, its answer comes
    return constants.retriedStatuses.includes(err.status) && this.kind !== "once" && err.code !== "tool_failed";
  }

  /** What the caller is told at last. */
  final(err: unknown): unknown {
    if (err instanceof SkerryError) {
      return [constants.keyDone, constants.keyUnknown].includes(keyConflict(err)) ? new LostError(err) : err;
    }
    const why = err instanceof Error ? err.message : String(err);
    return this.lost && this.kind !== "safe" ? new LostError(err) : new ConnectionError(because(why, err), { cause: err });
  }
}

/** fetch says "fetch failed", and only its cause says why. */
function because(why: string, err: unknown): string {
  const cause = (err as { cause?: { message?: string; code?: string } } | undefined)?.cause;
  const more = cause?.message || cause?.code;
  return more ? `${why}: ${more}` : why;
}

/** What a conflict over an Idempotency-Key is about: running, done or unknown; "" when it is none. */
function keyConflict(err: SkerryError): string {
  const only = err.fields[0];
  return err.code === "conflict" && err.fields.length === 1 && only?.field === constants.headerIdempotencyKey ? only.detail : "";
}

// What the runtimes call a connection that was not made: Node, then Bun. Deno says it in the text.
const neverConnected = new Set([
  "ECONNREFUSED",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "UND_ERR_CONNECT_TIMEOUT",
  "ConnectionRefused",
  "FailedToOpenSocket",
]);

/** Whether no connection was made, so that nothing can have been sent. */
export function notConnected(err: unknown): boolean {
  if (typeof err !== "object" || err === null) return false;
  const { code, message, cause, errors } = err as { code?: unknown; message?: unknown; cause?: unknown; errors?: unknown };
  if (typeof code === "string" && neverConnected.has(code)) return true;
  if (typeof message === "string" && /client error \(Connect\)|dns error/.test(message)) return true;
  if (Array.isArray(errors) && errors.length > 0) return errors.every(notConnected);
  return cause !== undefined && cause !== err && notConnected(cause);
}
