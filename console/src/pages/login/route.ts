import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { root } from "../../routes";
import { inside } from "../../session/oidc";
import { LoginPage } from "./LoginPage";

export const loginRoute = createRoute({
  getParentRoute: () => root,
  path: "/login",
  validateSearch: (s: Record<string, unknown>): { next?: string } => {
    const next = inside(s["next"]);
    return next === undefined ? {} : { next };
  },
  component: LoginPage,
});

/** Where an identity provider sends the browser back to. */
export const doneRoute = createRoute({
  getParentRoute: () => root,
  path: "/login/done",
  component: lazyRouteComponent(() => import("./DonePage"), "DonePage"),
});
