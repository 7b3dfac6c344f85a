import { path, type Finding, type SkillInstalled } from "@skerry/client";
import { session, type Principal } from "../../session/session";

/** A skill of the caller, with all that the server says of it. */
export interface Skill {
  name: string;
  description: string;
  license: string;
  compatibility: string;
  allowed_tools: string[];
  metadata: Record<string, unknown>;
  /** public, custom, or plugin:<name> */
  category: string;
  enabled: boolean;
  location: string;
  digest: string;
  trusted: boolean;
  template: string;
  findings: Finding[];
  runnable: { template: "yes" | "no" | "unknown"; missing: string[]; unsure?: string[] };
  /** SKILL.md, of one that was asked for with it. */
  text?: string;
}

export const skillsKey = ["skills"] as const;

export async function listSkills(signal: AbortSignal): Promise<Skill[]> {
  return (await session.client.call<{ skills: Skill[] }>({ method: "GET", path: "/api/skills" }, { signal })).skills;
}

export function readSkill(name: string, signal?: AbortSignal): Promise<Skill> {
  return session.client.call<Skill>({ method: "GET", path: path("skills", name), query: { text: true } }, signal === undefined ? {} : { signal });
}

/** A skill that does not load has no description: the server names no other one so. */
export function loads(s: Skill): boolean {
  return s.description !== "";
}

export function mayChange(me: Principal): boolean {
  return me.threads === undefined && (me.role === "developer" || me.role === "admin");
}

/** What can be installed: a file of this machine, an address, or an entry of a marketplace. */
export type Source = { file: File } | { url: string } | { marketplace: string; skill: string };

// An archive is fetched, unpacked and scanned meanwhile.
const installMs = 300_000;

/** Installs a skill. Strict: what the scan calls an error refuses it. */
export function install(source: Source, strict: boolean): Promise<SkillInstalled> {
  const at = { method: "POST", path: "/api/skills/install", query: strict ? { strict } : {}, kind: "once" } as const;
  if (!("file" in source)) return session.client.call({ ...at, body: source }, { timeoutMs: installMs });
  const content = new FormData();
  content.append("file", source.file, source.file.name);
  return session.client.call({ ...at, content }, { timeoutMs: installMs });
}
