import type { AnyRoute } from "@tanstack/react-router";
import type { Principal, Role } from "../session/session";
import { approvalsPage } from "./approvals/route";
import { auditPage } from "./audit/route";
import { keysPage } from "./keys/route";
import { overviewPage } from "./overview/route";
import { pluginsPage } from "./plugins/route";
import { policyPage } from "./policy/route";
import { secretsPage } from "./secrets/route";
import { serversPage } from "./servers/route";
import { skillsPage } from "./skills/route";
import { templatesPage } from "./templates/route";
import { threadsPage } from "./threads/route";
import { threadPage } from "./thread/route";
import { toolsPage } from "./tools/route";
import { usagePage } from "./usage/route";

/** An entry of the navigation. `roles` may read what the page shows; with `whole`, by a key that is good for all threads. */
export interface Nav {
  label: string;
  to: "/overview" | "/threads" | "/approvals" | "/tools" | "/skills" | "/plugins" | "/policy" | "/audit" | "/secrets" | "/keys" | "/usage" | "/templates" | "/servers";
  roles: readonly Role[];
  whole?: true;
  operator?: true;
}

export interface Page {
  route: AnyRoute;
  nav?: Nav;
}

// A page is a folder with a route.ts, and a line here.
export const pages = [overviewPage, threadsPage, threadPage, approvalsPage, toolsPage, skillsPage, pluginsPage, policyPage, auditPage, secretsPage, keysPage, usagePage, templatesPage, serversPage] as const satisfies readonly Page[];

/** What of the navigation a caller sees. The server refuses the rest anyway. */
export function navOf(me: Principal | undefined): Nav[] {
  const all: readonly Page[] = pages;
  const sees = (nav: Nav) => me !== undefined && nav.roles.includes(me.role) && (nav.whole !== true || me.threads === undefined) && (nav.operator !== true || me.operator);
  return all.flatMap(({ nav }) => (nav !== undefined && sees(nav) ? [nav] : []));
}
