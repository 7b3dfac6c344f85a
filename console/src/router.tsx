import { createRoute, createRouter, lazyRouteComponent, redirect } from "@tanstack/react-router";
import { navOf, pages } from "./pages";
import { doneRoute, loginRoute } from "./pages/login/route";
import { loggedInRoute } from "./pages/tools/route";
import { app, root } from "./routes";
import { session } from "./session/session";

const home = createRoute({
  getParentRoute: () => app,
  path: "/",
  beforeLoad: () => {
    const first = navOf(session.state.principal)[0];
    if (first !== undefined) throw redirect({ to: first.to });
  },
  component: lazyRouteComponent(() => import("./shell/NoPages"), "NoPages"),
});

export const router = createRouter({
  routeTree: root.addChildren([loginRoute, doneRoute, loggedInRoute, app.addChildren([home, ...pages.map((p) => p.route)])]),
  basepath: "/ui",
  defaultPreload: false,
  scrollRestoration: true,
  // A parameter that its page did not check reaches nobody.
  search: { strict: true },
});

session.onExpired(() => {
  const { href } = router.state.location;
  void router.navigate({ to: "/login", search: { next: href.replace(/^\/ui/, "") } });
});


declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
