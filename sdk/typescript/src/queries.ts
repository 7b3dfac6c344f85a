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
