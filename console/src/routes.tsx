import { createRootRoute, createRoute, Outlet, redirect } from "@tanstack/react-router";
import { session } from "./session/session";
import { Shell } from "./shell/Shell";
import { Unreachable } from "./shell/Unreachable";
import { NotFound } from "./shell/NotFound";

export const root = createRootRoute({ component: Outlet, notFoundComponent: NotFound, errorComponent: Unreachable });

/** The parent of every page behind the login. */
export const app = createRoute({
  getParentRoute: () => root,
  id: "app",
  beforeLoad: async ({ location }) => {
    if ((await session.identify()) === undefined) {
      throw redirect({ to: "/login", search: { next: location.href.replace(/^\/ui/, "") } });
    }
  },
  component: Shell,
});
