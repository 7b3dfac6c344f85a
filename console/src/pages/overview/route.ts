import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { app } from "../../routes";

const route = createRoute({
  getParentRoute: () => app,
  path: "/overview",
  validateSearch: (s: Record<string, unknown>): { window?: "day" } => (s["window"] === "day" ? { window: "day" } : {}),
  component: lazyRouteComponent(() => import("./OverviewPage"), "OverviewPage"),
});

export const overviewPage = { route, nav: { label: "Overview", to: "/overview", roles: ["admin"] } } as const;
