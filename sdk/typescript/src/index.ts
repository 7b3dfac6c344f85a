export { Context, Skerry, Thread, ThreadSkills, Tools } from "./client.js";
export { ConnectionError, DeadlineError, LostError, PreconditionError, SkerryError } from "./errors.js";
export { Exec, stderrBytes, stdoutBytes, type ExecEvent } from "./execs.js";
export { Files, type FileContent, type PutConditions } from "./files.js";
export type * from "./models.js";
export type * from "./queries.js";
export { Terminal, type Socket, type SocketConstructor, type TerminalExit } from "./terminal.js";
export { path, type Bytes, type CallOptions, type Options, type Query, type Request } from "./transport.js";
export type { Kind } from "./repeat.js";
