import type { AnyRoute } from "@tanstack/react-router";
import type { Role } from "../session/session";
import { approvalsPage } from "./approvals/route";
import { auditPage } from "./audit/route";
import { overviewPage } from "./overview/route";
import { pluginsPage } from "./plugins/route";
import { policyPage } from "./policy/route";
import { skillsPage } from "./skills/route";
import { threadsPage } from "./threads/route";
import { threadPage } from "./thread/route";
import { toolsPage } from "./tools/route";

/** An entry of the navigation. `roles` may read what the page shows. */
export interface Nav {
  label: string;
  to: "/overview" | "/threads" | "/approvals" | "/tools" | "/skills" | "/plugins" | "/policy" | "/audit";
  roles: readonly Role[];
}

export interface Page {
  route: AnyRoute;
  nav?: Nav;
}

// A page is a folder with a route.ts, and a line here.
export const pages = [overviewPage, threadsPage, threadPage, approvalsPage, toolsPage, skillsPage, pluginsPage, policyPage, auditPage] as const satisfies readonly Page[];

/** What of the navigation a role sees. The server refuses the rest anyway. */
export function navOf(role: Role | undefined): Nav[] {
  const all: readonly Page[] = pages;
  return all.flatMap(({ nav }) => (nav !== undefined && role !== undefined && nav.roles.includes(role) ? [nav] : []));
}
