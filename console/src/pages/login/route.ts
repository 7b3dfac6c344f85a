import { createRoute } from "@tanstack/react-router";
import { root } from "../../routes";
import { LoginPage } from "./LoginPage";

/** Where to go after the login: a path of the console, never another site. */
function inside(next: unknown): string | undefined {
  return typeof next === "string" && /^\/(?![/\\])/.test(next) && !next.startsWith("/login") ? next : undefined;
}

export const loginRoute = createRoute({
  getParentRoute: () => root,
  path: "/login",
  validateSearch: (s: Record<string, unknown>): { next?: string } => {
    const next = inside(s["next"]);
    return next === undefined ? {} : { next };
  },
  component: LoginPage,
});
