import * as constants from "./constants.js";
import type { ErrorCode, FieldError, Limit, Problem } from "./models.js";

/** An error that the server answered. */
export class SkerryError extends Error {
  override readonly name: string = "SkerryError";
  readonly status: number;
  readonly code: ErrorCode;
  readonly detail: string;
  readonly fields: FieldError[];
  readonly limit: Limit | undefined;
  readonly notStarted: boolean;
  readonly requestId: string | undefined;
  /** Milliseconds; 0 when the server did not say. */
  readonly retryAfterMs: number;

  constructor(problem: Partial<Problem> & { status: number; code: ErrorCode; detail: string }, headers?: Headers) {
    const fields = problem.errors ?? [];
    super(`${[problem.detail, ...fields.map((f) => `  ${f.field}: ${f.detail}`)].join("\n")} (${problem.code})`);
    this.status = problem.status;
    this.code = problem.code;
    this.detail = problem.detail;
    this.fields = fields;
    this.limit = problem.limit;
    this.notStarted = problem.not_started ?? false;
    this.requestId = headers?.get(constants.headerRequestId) ?? undefined;
    const seconds = Number(headers?.get(constants.headerRetryAfter) ?? 0);
    this.retryAfterMs = seconds > 0 ? seconds * 1000 : 0;
  }
}

/** A file is not what a condition of `put` wants (412), and nothing was written. Its code is `conflict`. */
export class PreconditionError extends SkerryError {
  override readonly name = "PreconditionError";
}

/** No connection was made, or it was lost while nothing could have been changed. */
export class ConnectionError extends Error {
  override readonly name = "ConnectionError";
}

/** A call took longer than it may. */
export class DeadlineError extends Error {
  override readonly name = "DeadlineError";
}

/**
 * The connection was lost, and what was asked for is not known to have ended. It is not sent again, because it may have
 * been done.
 */
export class LostError extends Error {
  override readonly name = "LostError";
  /** What may still run; undefined when the server had not yet said it. `thread.execs()` lists all. */
  readonly execId: string | undefined;

  constructor(cause: unknown, execId?: string) {
    const why = cause instanceof Error ? cause.message : String(cause);
    super(
      execId === undefined
        ? `the connection was lost before the server answered; the request may have been done: ${why}`
        : `the connection was lost; exec ${execId} may still run: ${why}`,
      { cause },
    );
    this.execId = execId;
  }
}

/** Makes the error of an answer with a status of 400 or more. */
export async function errorFrom(answer: Response): Promise<SkerryError> {
  let problem: Partial<Problem> = {};
  try {
    problem = (await answer.json()) as Partial<Problem>;
  } catch {
    // It is not the server's own answer, but that of a proxy before it, say.
  }
  const code = problem.code ?? constants.codeOfStatus[answer.status] ?? (answer.status >= 500 ? "internal" : "invalid");
  const detail = problem.code === undefined ? `the server answered ${answer.status} ${answer.statusText}`.trim() : (problem.detail ?? code);
  const kind = answer.status === 412 ? PreconditionError : SkerryError;
  return new kind({ ...problem, status: answer.status, code, detail }, answer.headers);
}
