import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { app } from "../../routes";

export const scopes = ["server", "tenant"] as const;
export type Scope = (typeof scopes)[number];

export interface PolicySearch {
  /** Whose rules. Without it an operator sees the server's, and an administrator the tenant's. */
  scope?: Scope;
  /** The rules as text when absent. */
  view?: "past";
  /** How many days back rules are tried; a week when absent. */
  days?: 1 | 30;
}

const route = createRoute({
  getParentRoute: () => app,
  path: "/policy",
  validateSearch: (s: Record<string, unknown>): PolicySearch => {
    const out: PolicySearch = {};
    const scope = scopes.find((x) => x === s["scope"]);
    if (scope !== undefined) out.scope = scope;
    if (s["view"] === "past") out.view = "past";
    if (s["days"] === 1 || s["days"] === 30) out.days = s["days"];
    return out;
  },
  component: lazyRouteComponent(() => import("./PolicyPage"), "PolicyPage"),
});

export const policyPage = { route, nav: { label: "Policy", to: "/policy", roles: ["admin"] } } as const;
