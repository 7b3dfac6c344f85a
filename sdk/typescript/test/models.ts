// Compiled against openapi.d.ts, which openapi-typescript makes of the running server's /openapi.json: what the server
// sends fits our types, and what our types allow fits what it takes. There is nothing to run.
import type { components } from "./openapi.js";
import type * as ours from "../src/index.js";

type Theirs = components["schemas"];

/** What the server sends has strings where we name those that there are. */
type Loose<T> = T extends string ? string : T extends (infer U)[] ? Loose<U>[] : T extends object ? { [K in keyof T]: Loose<T[K]> } : T;

type Sends<Server, Client> = Server extends Loose<Client> ? true : { server: Server; client: Loose<Client> };
type Takes<Client, Server> = Client extends Server ? true : { client: Client; server: Server };

/** Every name of ours is one of theirs. */
type Known<Client, Server> = Exclude<keyof Client, keyof Server> extends never ? true : Exclude<keyof Client, keyof Server>;

const all: true[] = [];
function is<T extends true>(): T[] {
  return [];
}

// Sent by the server.
all.push(...is<Sends<Theirs["ActiveSkill"], ours.ActiveSkill>>(), ...is<Known<ours.ActiveSkill, Theirs["ActiveSkill"]>>());
all.push(...is<Sends<Theirs["Approval"], ours.Approval>>(), ...is<Known<ours.Approval, Theirs["Approval"]>>());
all.push(...is<Sends<Theirs["AuditRecord"], ours.AuditRecord>>(), ...is<Known<ours.AuditRecord, Theirs["AuditRecord"]>>());
all.push(...is<Sends<Theirs["AuditSummary"], ours.AuditSummary>>());
all.push(...is<Sends<Theirs["AuditVerification"], ours.AuditVerification>>());
all.push(...is<Sends<Theirs["CodeContext"], ours.CodeContext>>(), ...is<Known<ours.CodeContext, Theirs["CodeContext"]>>());
all.push(...is<Sends<Theirs["Edited"], ours.Edited>>(), ...is<Sends<Theirs["Written"], ours.Written>>());
all.push(...is<Sends<Theirs["ExecInfo"], ours.ExecInfo>>(), ...is<Known<ours.ExecInfo, Theirs["ExecInfo"]>>());
all.push(...is<Sends<Theirs["ExecResult"], ours.ExecResult>>(), ...is<Known<ours.ExecResult, Theirs["ExecResult"]>>());
all.push(...is<Sends<Theirs["FileListing"], ours.FileListing>>(), ...is<Known<ours.FileEntry, Theirs["FileEntry"]>>());
all.push(...is<Sends<Theirs["FileText"], ours.FileText>>(), ...is<Known<ours.FileText, Theirs["FileText"]>>());
all.push(...is<Sends<Theirs["GrepMatches"], ours.GrepMatches>>());
all.push(...is<Sends<Theirs["Problem"], ours.Problem>>(), ...is<Known<ours.Problem, Theirs["Problem"]>>());
all.push(...is<Takes<Theirs["Problem"]["code"], ours.ErrorCode>>(), ...is<Takes<ours.ErrorCode, Theirs["Problem"]["code"]>>());
all.push(...is<Sends<Theirs["Prompt"], ours.Prompt>>(), ...is<Known<ours.Prompt, Theirs["Prompt"]>>());
all.push(...is<Sends<Theirs["Sandbox"], ours.Sandbox>>(), ...is<Known<ours.Sandbox, Theirs["Sandbox"]>>());
all.push(...is<Sends<Theirs["ServersAnswer"], ours.ToolServers>>());
all.push(...is<Sends<Theirs["Skill"], ours.Skill>>(), ...is<Known<ours.Skill, Theirs["Skill"]>>());
all.push(...is<Sends<Theirs["SkillFile"], ours.SkillFile>>(), ...is<Known<ours.SkillFile, Theirs["SkillFile"]>>());
all.push(...is<Sends<Theirs["SkillFound"], ours.SkillFound>>(), ...is<Sends<Theirs["SkillInstalled"], ours.SkillInstalled>>());
all.push(...is<Sends<Theirs["Template"], ours.Template>>(), ...is<Known<ours.Template, Theirs["Template"]>>());
all.push(...is<Sends<Theirs["Thread"], ours.ThreadInfo>>(), ...is<Known<ours.ThreadInfo, Theirs["Thread"]>>());
all.push(...is<Sends<Theirs["ToolFound"], ours.Tool>>(), ...is<Known<ours.Tool, Theirs["ToolFound"]>>());
all.push(...is<Sends<Theirs["ToolResult"], ours.ToolResult>>(), ...is<Sends<Theirs["ToolSearch"], ours.ToolSearch>>());
all.push(...is<Sends<Theirs["Transferred"], ours.Transferred>>(), ...is<Known<ours.Transferred, Theirs["Transferred"]>>());
all.push(...is<Sends<Theirs["Unpacked"], ours.Unpacked>>(), ...is<Sends<Theirs["WatchedChange"], ours.WatchedChange>>());
all.push(...is<Sends<Theirs["VirtualSkill"], ours.AddedSkill>>());

// Taken by the server.
all.push(...is<Takes<ours.AcquireOptions, Theirs["SandboxBody"]>>(), ...is<Known<ours.AcquireOptions, Theirs["SandboxBody"]>>());
all.push(...is<Takes<ours.Code, Theirs["CodeBody"]>>(), ...is<Known<ours.Code, Theirs["CodeBody"]>>());
all.push(...is<Takes<ours.Command, Theirs["ExecBody"]>>(), ...is<Known<ours.Command, Theirs["ExecBody"]>>());
all.push(...is<Takes<ours.ContextOptions, Theirs["ContextBody"]>>(), ...is<Known<ours.ContextOptions, Theirs["ContextBody"]>>());
all.push(...is<Takes<ours.Decision, Theirs["DecisionBody"]>>(), ...is<Known<ours.Decision, Theirs["DecisionBody"]>>());
all.push(...is<Takes<ours.Script, Theirs["SkillBody"]>>(), ...is<Known<ours.Script, Theirs["SkillBody"]>>());
all.push(...is<Takes<ours.VirtualSkill, Theirs["VirtualBody"]>>(), ...is<Known<ours.VirtualSkill, Theirs["VirtualBody"]>>());
