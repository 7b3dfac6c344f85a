import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { app } from "../../routes";
import { states, type StateName } from "./states";

export interface ThreadsSearch {
  state?: StateName;
  /** key=value; all have to fit. */
  label?: string[];
}

const route = createRoute({
  getParentRoute: () => app,
  path: "/threads",
  validateSearch: (s: Record<string, unknown>): ThreadsSearch => {
    const out: ThreadsSearch = {};
    const state = states.find((name) => name === s["state"]);
    if (state !== undefined) out.state = state;
    const label = (Array.isArray(s["label"]) ? s["label"] : [s["label"]]).filter((l): l is string => typeof l === "string" && /^[^=]+=/.test(l)).slice(0, 16);
    if (label.length > 0) out.label = label;
    return out;
  },
  component: lazyRouteComponent(() => import("./ThreadsPage"), "ThreadsPage"),
});

export const threadsPage = { route, nav: { label: "Threads", to: "/threads", roles: ["agent", "developer", "admin"] } } as const;
