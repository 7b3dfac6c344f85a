// The shapes of the API, with its own names. test/models.ts holds them against /openapi.json.

export type SandboxState = "starting" | "running" | "paused" | "stopping" | "lost" | "hibernated";
export type Language = "typescript" | "javascript" | "python" | "bash";
export type ExecStatus = "running" | "exited" | "timeout" | "oom" | "killed" | "lost";

export interface Sandbox {
  id: string;
  state: SandboxState;
  template: string;
  driver: string;
  runtime: string;
  warm: boolean;
  created_at: string;
  idle_timeout_s: number;
  /** Milliseconds. */
  timings_ms: { queue: number; create: number; ready: number };
}

export interface ThreadInfo {
  thread_id: string;
  tenant: string;
  user: string;
  labels: Record<string, string>;
  mode?: string;
  created_at: string;
  last_active_at: string;
  workspace: { bytes: number; files: number };
  sandbox?: Sandbox;
}

export interface Template {
  name: string;
  description: string;
  languages: string[];
  runtime: string;
  idle_timeout_s: number;
  limits: {
    cpu_millis: number;
    memory_bytes: number;
    disk_bytes: number;
    file_bytes: number;
    tmp_bytes: number;
    open_files: number;
    pids: number;
  };
}

/** What sandbox a thread gets. Nothing: of the default template, or as it was. */
export interface AcquireOptions {
  template?: string;
  labels?: Record<string, string>;
  env?: Record<string, string>;
  skills?: string[];
  capabilities?: string[];
  mode?: "direct" | "code" | "auto";
  wait_s?: number;
}

/** Either `command`, run by a shell, or `argv`, without one. */
export interface Command {
  command?: string;
  argv?: string[];
  /** /mnt/user-data/workspace when absent. */
  cwd?: string;
  env?: Record<string, string>;
  /** Variables by the names of secrets. */
  env_secrets?: Record<string, string>;
  stdin?: string;
  keep_stdin?: boolean;
  /** 60 when absent, at most 3600. */
  timeout_s?: number;
  max_output_bytes?: number;
  report_files?: boolean;
  /** With `start`: a terminal. */
  pty?: { cols: number; rows: number };
}

export interface Code {
  code: string;
  language?: Language;
  /** Seconds; 30 when absent, at most 120. */
  timeout?: number;
  max_output_chars?: number;
  env?: Record<string, string>;
  env_secrets?: Record<string, string>;
  /** In this context, and its language. */
  context_id?: string;
}

export interface Script {
  /** Path in the skill's folder. */
  script: string;
  args?: string[];
  stdin?: string;
  env?: Record<string, string>;
  env_secrets?: Record<string, string>;
  timeout_s?: number;
}

export interface FileChange {
  path: string;
  bytes: number;
  mime?: string;
  sha256?: string;
  /** created, modified or deleted. */
  change: string;
}

export interface ToolCalled {
  tool: string;
  /** ok, error, denied or timeout. */
  status: string;
  ms: number;
  error?: string;
}

/** An exec, running or ended. */
export interface ExecResult {
  exec_id: string;
  status: ExecStatus;
  /** Why the server ended it. */
  detail?: string;
  /** null unless status is exited. */
  exit_code: number | null;
  /** `stdoutBytes` decodes what is not text. */
  stdout: string;
  stderr: string;
  /** base64 when stdout or stderr is not UTF-8; then both are. */
  encoding?: string;
  truncated: boolean;
  /** Where all of it is, when it was cut. */
  stdout_path: string | null;
  stderr_path: string | null;
  duration_ms: number;
  usage: { cpu_ms: number; max_rss_bytes: number };
  tools_called?: ToolCalled[];
  files: FileChange[];
  files_truncated?: boolean;
  /** Of a run in a context: what became of it, and what was displayed, by MIME type. */
  context?: { context_id: string; state: string; detail?: string };
  results?: Record<string, unknown>[];
  results_left_out?: number;
}

export interface ExecInfo {
  exec_id: string;
  /** exec, execute_code or skill_run. */
  action: string;
  subject: string;
  status: ExecStatus;
  exit_code: number | null;
  background: boolean;
  started_at: string;
}

export interface CodeContext {
  context_id: string;
  language: string;
  cwd: string;
  state: string;
  detail?: string;
  exec_id?: string;
  runs: number;
  created_at: string;
  last_used_at: string;
}

export interface ContextOptions {
  language?: "python" | "typescript" | "javascript";
  cwd?: string;
}

export interface FileText {
  path: string;
  content: string;
  /** utf-8, or base64 when it is not text. */
  encoding: string;
  bytes: number;
  total_lines: number;
  start_line: number;
  end_line: number;
  next_offset?: number;
  truncated?: boolean;
  modified_at: string;
}

export interface Written {
  path: string;
  bytes: number;
}

export interface Edited {
  path: string;
  occurrences: number;
}

export interface FileEntry {
  path: string;
  is_dir: boolean;
  bytes: number;
  mode: string;
  modified_at: string;
  symlink?: string;
}

export interface FileListing {
  items: FileEntry[];
  truncated: boolean;
}

export interface GrepOptions {
  pattern: string;
  /** The pattern is an RE2 expression, else plain text. */
  regex?: boolean;
  /** Only in files that match. */
  glob?: string;
  max?: number;
  ignore_case?: boolean;
  /** Lines before and after. */
  context?: number;
}

export interface GrepMatches {
  items: { path: string; line: number; text: string; before?: string[]; after?: string[] }[];
  truncated: boolean;
}

/** What became of one file of an upload or download. */
export interface Transferred {
  path: string;
  bytes: number;
  content?: string;
  encoding?: "utf-8" | "base64";
  error?: "file_not_found" | "permission_denied" | "is_directory" | "invalid_path" | "quota_exceeded";
  detail?: string;
}

export interface ToolServers {
  servers: { name: string; description: string; transport: string; state: string; tool_count: number; error?: string }[];
  total_tools: number;
}

export interface ToolQuery {
  query?: string;
  server?: string;
  detail?: "name" | "desc" | "full";
}

/** How much is known of a tool depends on `detail`. */
export interface Tool {
  /** {server}__{tool} */
  name: string;
  short_name: string;
  server: string;
  description?: string;
  /** A JSON Schema. */
  parameters?: unknown;
  output?: unknown;
  wrapper_path?: string;
}

/** Best first, at most 15. */
export interface ToolSearch {
  query: string;
  server_filter: string;
  match_count: number;
  showing: number;
  tools: Tool[];
}

export interface ToolResult {
  result?: unknown;
  is_error: boolean;
  ms: number;
  call_id: string;
}

/** What to tell the agent, and which tools to register with it. */
export interface Prompt {
  text: string;
  sections: Record<string, string>;
  mode: string;
  tools: unknown[];
}

export interface Finding {
  rule: string;
  severity: string;
  message: string;
  file?: string;
  line?: number;
}

export interface Skill {
  name: string;
  description: string;
  license: string;
  category: string;
  enabled: boolean;
  location: string;
  digest: string;
  findings: Finding[];
}

export interface SkillFound {
  name: string;
  description: string;
  location: string;
}

/** A skill of one thread, given as text. */
export interface VirtualSkill {
  name: string;
  description: string;
  body: string;
  files?: Record<string, string>;
}

export interface AddedSkill {
  name: string;
  description: string;
  category: string;
  location: string;
  digest: string;
  findings: Finding[];
}

export interface ActiveSkill {
  name: string;
  content: string;
  location: string;
  resources: string[];
}

export interface SkillFile {
  path: string;
  location: string;
  bytes: number;
  mime: string;
  text?: string;
}

export interface SkillInstalled {
  success: boolean;
  skill_name: string;
  digest: string;
  message: string;
  findings: Finding[];
}

/** A call that waits, or waited, for a person. */
export interface Approval {
  id: string;
  state: "pending" | "approved" | "denied" | "expired" | "cancelled";
  tenant: string;
  user: string;
  thread_id: string;
  exec_id?: string;
  server?: string;
  tool: string;
  skill?: string;
  why: string;
  arguments?: unknown;
  args_hash: string;
  created_at: string;
  expires_at: string;
}

export interface Decision {
  decision: "approve" | "deny";
  reason?: string;
  scope?: "once" | "arguments" | "thread";
}

export interface AuditFilter {
  thread?: string;
  user?: string;
  exec?: string;
  action?: string;
  tool?: string;
  outcome?: string;
  since?: Date | string;
  until?: Date | string;
  /** Text anywhere in the record. */
  q?: string;
}

export interface AuditRecord {
  id: string;
  writer: string;
  seq: number;
  time: string;
  phase: string;
  action: string;
  outcome?: string;
  subject?: string;
  detail?: string;
  tenant: string;
  user: string;
  thread?: string;
  sandbox?: string;
  exec?: string;
  parent?: string;
  request_id?: string;
  args?: unknown;
  args_hash?: string;
  ms: number;
  bytes_in: number;
  bytes_out: number;
  prev: string;
  hash: string;
}

export interface AuditVerification {
  ok: boolean;
  records: number;
  first_bad?: { writer: string; seq: number; id?: string; reason: string; detail?: string };
}

/** How `files.getArchive` packs. */
export type ArchiveFormat = "tar.gz" | "tar" | "zip";

/** What `files.putArchive` wrote. */
export interface Unpacked {
  path: string;
  files: number;
  bytes: number;
}

/** A change that `files.watch` tells of. */
export interface WatchedChange {
  path: string;
  change: "started" | "created" | "modified" | "deleted";
  is_dir: boolean;
}

/** How the program of a terminal ended; `result` of its exec has the whole. */
export interface TerminalExit {
  exec_id: string;
  status: ExecResult["status"];
  exit_code: number | null;
  duration_ms: number;
}
