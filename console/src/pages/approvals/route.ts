import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { app } from "../../routes";

export interface ApprovalsSearch {
  /** Those that are over, too. */
  all?: true;
  id?: string;
}

const route = createRoute({
  getParentRoute: () => app,
  path: "/approvals",
  validateSearch: (s: Record<string, unknown>): ApprovalsSearch => {
    const out: ApprovalsSearch = {};
    if (s["all"] === true) out.all = true;
    if (typeof s["id"] === "string" && s["id"] !== "" && s["id"].length <= 64) out.id = s["id"];
    return out;
  },
  component: lazyRouteComponent(() => import("./ApprovalsPage"), "ApprovalsPage"),
});

export const approvalsPage = { route, nav: { label: "Approvals", to: "/approvals", roles: ["agent", "developer", "admin"] } } as const;
