// What the caller asks for. The OpenAPI document has these as parameters of routes, so no model is made of them.

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

/** How `files.getArchive` packs. */
export type ArchiveFormat = "tar.gz" | "tar" | "zip";

export interface ToolQuery {
  query?: string;
  server?: string;
  detail?: "name" | "desc" | "full";
  /** How many tools to describe, at most 15. Without it, full describes the few that fit best, and names the next ones in `also`. */
  limit?: number;
  /** With full: the schemas of results too. */
  output_schema?: boolean;
}

/** Which threads. Without anything: all of the caller. */
export interface ThreadFilter {
  /** Administrators only, unless it is the caller; "*": all users of the tenant. */
  user?: string;
  labels?: Record<string, string>;
  /** State of the sandbox. */
  state?: string;
  /** Template of the sandbox. */
  template?: string;
  /** In the id, the user or a value of the labels, whatever its case. */
  text?: string;
  activeAfter?: Date;
  activeBefore?: Date;
  /** The least size of the files when they were last measured. */
  minDiskMib?: number;
  /** By name, the latest activity first, which is the order of all users' threads, or the largest files first, without threads that were never measured. */
  sort?: "thread_id" | "last_active_at" | "disk_bytes";
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
