export { Context, Skerry, Thread, ThreadSkills, Tools } from "./client.js";
export { ConnectionError, DeadlineError, LostError, SkerryError, type ErrorCode, type FieldError, type Limit, type Problem } from "./errors.js";
export { Exec, stderrBytes, stdoutBytes, type ExecEvent } from "./execs.js";
export { Files } from "./files.js";
export type * from "./models.js";
export { Terminal, type Socket, type SocketConstructor } from "./terminal.js";
export { path, type Bytes, type CallOptions, type Options, type Query, type Request } from "./transport.js";
export type { Kind } from "./repeat.js";
