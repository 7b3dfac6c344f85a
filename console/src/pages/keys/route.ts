import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { app } from "../../routes";

export interface KeysSearch {
  /** The id of the key that is shown. Never its secret. */
  key?: string;
  /** Part of names, users and ids. */
  q?: string;
  /** The form of a new one. */
  add?: true;
}

const text = (v: unknown, most: number): string | undefined => (typeof v === "string" && v !== "" && v.length <= most ? v : undefined);

const route = createRoute({
  getParentRoute: () => app,
  path: "/keys",
  validateSearch: (s: Record<string, unknown>): KeysSearch => {
    const out: KeysSearch = {};
    const key = text(s["key"], 128);
    if (key !== undefined) out.key = key;
    const q = text(s["q"], 128);
    if (q !== undefined) out.q = q;
    if (s["add"] === true) out.add = true;
    return out;
  },
  component: lazyRouteComponent(() => import("./KeysPage"), "KeysPage"),
});

export const keysPage = { route, nav: { label: "Keys", to: "/keys", roles: ["admin"], whole: true } } as const;
