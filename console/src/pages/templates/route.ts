import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { app } from "../../routes";

export interface TemplatesSearch {
  template?: string;
  /** What the template is when absent; packages: what its image is made of. */
  view?: "packages";
  /** Part of names of packages. */
  q?: string;
}

const text = (v: unknown): string | undefined => (typeof v === "string" && v !== "" && v.length <= 128 ? v : undefined);

const route = createRoute({
  getParentRoute: () => app,
  path: "/templates",
  validateSearch: (s: Record<string, unknown>): TemplatesSearch => {
    const out: TemplatesSearch = {};
    const template = text(s["template"]);
    if (template !== undefined) out.template = template;
    if (s["view"] === "packages") out.view = "packages";
    const q = text(s["q"]);
    if (q !== undefined) out.q = q;
    return out;
  },
  component: lazyRouteComponent(() => import("./TemplatesPage"), "TemplatesPage"),
});

export const templatesPage = { route, nav: { label: "Templates", to: "/templates", roles: ["agent", "developer", "admin"], whole: true } } as const;
