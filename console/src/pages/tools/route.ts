import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { app, root } from "../../routes";

export const tabs = ["changed", "packs"] as const;
export const views = ["try", "json"] as const;

export interface ToolsSearch {
  /** The thread whose tools are shown, and where they are tried. */
  thread?: string;
  /** Servers when absent. */
  tab?: (typeof tabs)[number];
  server?: string;
  tool?: string;
  /** The parameters of the tool when absent. */
  view?: (typeof views)[number];
  pack?: string;
  /** The configuration of the server, or that of a new one. */
  edit?: "config" | "new";
}

/** The address of a server, in the same thread. */
export function atServer({ thread }: ToolsSearch, server: string): ToolsSearch {
  return { ...(thread === undefined ? {} : { thread }), server };
}

const text = (v: unknown, most = 512): string | undefined => (typeof v === "string" && v !== "" && v.length <= most ? v : undefined);

const route = createRoute({
  getParentRoute: () => app,
  path: "/tools",
  validateSearch: (s: Record<string, unknown>): ToolsSearch => {
    const out: ToolsSearch = {};
    const thread = text(s["thread"], 128);
    if (thread !== undefined && /^[A-Za-z0-9_-]+$/.test(thread)) out.thread = thread;
    const tab = tabs.find((t) => t === s["tab"]);
    if (tab !== undefined) out.tab = tab;
    for (const name of ["server", "tool", "pack"] as const) {
      const value = text(s[name]);
      if (value !== undefined) out[name] = value;
    }
    const view = views.find((v) => v === s["view"]);
    if (view !== undefined) out.view = view;
    if (s["edit"] === "config" || s["edit"] === "new") out.edit = s["edit"];
    return out;
  },
  component: lazyRouteComponent(() => import("./ToolsPage"), "ToolsPage"),
});

/** The address that the page was loaded by. The router writes addresses anew, and the code of a login has to stay as it is. */
export const arrivedAt = location.href;

/** Where an authorization server sends the browser back to. It needs no login at Skerry: it hands its address to the page that waits. */
export const loggedInRoute = createRoute({
  getParentRoute: () => root,
  path: "/tools/login",
  component: lazyRouteComponent(() => import("./LoggedIn"), "LoggedIn"),
});

export const toolsPage = { route, nav: { label: "Tools", to: "/tools", roles: ["agent", "developer", "admin"] } } as const;
