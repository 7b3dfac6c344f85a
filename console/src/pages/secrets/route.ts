import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { app } from "../../routes";

export interface SecretsSearch {
  /** The secret that is shown: its name, its scope, and where it is from unless it is stored. Several may have one name. */
  name?: string;
  scope?: string;
  from?: "file" | "env";
  /** The form of a new one. */
  add?: true;
}

const text = (v: unknown, most: number): string | undefined => (typeof v === "string" && v !== "" && v.length <= most ? v : undefined);

const route = createRoute({
  getParentRoute: () => app,
  path: "/secrets",
  validateSearch: (s: Record<string, unknown>): SecretsSearch => {
    const out: SecretsSearch = {};
    const name = text(s["name"], 128);
    if (name !== undefined) out.name = name;
    const scope = text(s["scope"], 300);
    if (scope !== undefined) out.scope = scope;
    if (s["from"] === "file" || s["from"] === "env") out.from = s["from"];
    if (s["add"] === true) out.add = true;
    return out;
  },
  component: lazyRouteComponent(() => import("./SecretsPage"), "SecretsPage"),
});

export const secretsPage = { route, nav: { label: "Secrets", to: "/secrets", roles: ["agent", "developer", "admin"], whole: true } } as const;
