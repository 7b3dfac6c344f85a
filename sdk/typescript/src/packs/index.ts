/**
 * Gives the agents of a Skerry server tools that are functions of your program. A `Pack` has tools, whose schemas come
 * from Zod or are JSON Schemas. `serve` connects to a server and answers calls. It connects again by itself when the
 * connection is lost.
 *
 * @packageDocumentation
 */
export { bearerKey, type Credential } from "./credential.js";
export { Pack, type Call, type Caller, type Handler, type Log, type PackOptions, type ToolOptions } from "./pack.js";
export { Result, type Content } from "./result.js";
export type { JSONSchema, Schema, StandardSchema } from "./schema.js";
export type { ServeOptions } from "./serve.js";
export { virtualSkill, type AttachedSkill, type AttachOptions, type SkillTool, type SkillWithTools } from "./skill.js";
export { sshAgent, sshKeyFile } from "./ssh.js";
