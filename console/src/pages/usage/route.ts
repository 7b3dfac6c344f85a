import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { app } from "../../routes";

export interface UsageSearch {
  /** How many days are shown; 30 when absent. */
  days?: 7 | 92;
  /** Of whom; by day when absent. */
  by?: "user" | "key";
  /** The only user that is counted, for administrators. */
  user?: string;
}

const route = createRoute({
  getParentRoute: () => app,
  path: "/usage",
  validateSearch: (s: Record<string, unknown>): UsageSearch => {
    const out: UsageSearch = {};
    if (s["days"] === 7 || s["days"] === 92) out.days = s["days"];
    if (s["by"] === "user" || s["by"] === "key") out.by = s["by"];
    if (typeof s["user"] === "string" && s["user"] !== "" && s["user"].length <= 128) out.user = s["user"];
    return out;
  },
  component: lazyRouteComponent(() => import("./UsagePage"), "UsagePage"),
});

export const usagePage = { route, nav: { label: "Usage", to: "/usage", roles: ["agent", "developer", "admin"], whole: true } } as const;
