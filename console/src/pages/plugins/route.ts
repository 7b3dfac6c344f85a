import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { app } from "../../routes";

export const tabs = ["commands", "markets"] as const;
export const views = ["values", "findings"] as const;

export interface PluginsSearch {
  /** The plugins that the caller has when absent. */
  tab?: (typeof tabs)[number];
  plugin?: string;
  /** What the plugin brings when absent. */
  view?: (typeof views)[number];
  market?: string;
  /** How to install a plugin, or to add a marketplace. */
  add?: true;
}

const text = (v: unknown, most: number): string | undefined => (typeof v === "string" && v !== "" && v.length <= most ? v : undefined);

const route = createRoute({
  getParentRoute: () => app,
  path: "/plugins",
  validateSearch: (s: Record<string, unknown>): PluginsSearch => {
    const out: PluginsSearch = {};
    const tab = tabs.find((t) => t === s["tab"]);
    if (tab !== undefined) out.tab = tab;
    const plugin = text(s["plugin"], 64);
    if (plugin !== undefined) out.plugin = plugin;
    const view = views.find((v) => v === s["view"]);
    if (view !== undefined) out.view = view;
    const market = text(s["market"], 64);
    if (market !== undefined) out.market = market;
    if (s["add"] === true) out.add = true;
    return out;
  },
  component: lazyRouteComponent(() => import("./PluginsPage"), "PluginsPage"),
});

export const pluginsPage = { route, nav: { label: "Plugins", to: "/plugins", roles: ["agent", "developer", "admin"] } } as const;
