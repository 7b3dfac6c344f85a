import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { app } from "../../routes";

export interface ServersSearch {
  /** Which server has this thread is looked for. */
  thread?: string;
  /** Whose thread it is; the caller's when absent. */
  user?: string;
}

const route = createRoute({
  getParentRoute: () => app,
  path: "/servers",
  validateSearch: (s: Record<string, unknown>): ServersSearch => {
    const out: ServersSearch = {};
    if (typeof s["thread"] === "string" && /^[A-Za-z0-9_-]{1,128}$/.test(s["thread"])) out.thread = s["thread"];
    if (typeof s["user"] === "string" && s["user"] !== "" && s["user"].length <= 128) out.user = s["user"];
    return out;
  },
  component: lazyRouteComponent(() => import("./ServersPage"), "ServersPage"),
});

export const serversPage = { route, nav: { label: "Servers", to: "/servers", roles: ["admin"], whole: true, operator: true } } as const;
