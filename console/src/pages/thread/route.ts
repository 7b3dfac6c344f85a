import { createRoute, lazyRouteComponent, retainSearchParams } from "@tanstack/react-router";
import { app } from "../../routes";

const text = (v: unknown): string | undefined => (typeof v === "string" && v !== "" && v.length <= 4096 ? v : undefined);

function chosenExec(s: Record<string, unknown>): { exec?: string } {
  const exec = text(s["exec"]);
  return exec === undefined ? {} : { exec };
}

const thread = createRoute({
  getParentRoute: () => app,
  path: "/threads/$thread",
  // Whose thread it is, when it is not the caller's.
  validateSearch: (s: Record<string, unknown>): { of?: string } => {
    const of = text(s["of"]);
    return of === undefined || of.length > 128 ? {} : { of };
  },
  search: { middlewares: [retainSearchParams(["of"])] },
  component: lazyRouteComponent(() => import("./ThreadPage"), "ThreadPage"),
});

const execs = createRoute({
  getParentRoute: () => thread,
  path: "/",
  validateSearch: chosenExec,
  component: lazyRouteComponent(() => import("./Execs"), "Execs"),
});

const terminal = createRoute({
  getParentRoute: () => thread,
  path: "/terminal",
  validateSearch: chosenExec,
  component: lazyRouteComponent(() => import("./TerminalTab"), "TerminalTab"),
});

const processes = createRoute({
  getParentRoute: () => thread,
  path: "/processes",
  component: lazyRouteComponent(() => import("./Processes"), "Processes"),
});

const files = createRoute({
  getParentRoute: () => thread,
  path: "/files",
  validateSearch: (s: Record<string, unknown>): { path?: string } => {
    const path = text(s["path"]);
    return path === undefined || !path.startsWith("/") ? {} : { path };
  },
  component: lazyRouteComponent(() => import("./files/Files"), "Files"),
});

export const threadPage = { route: thread.addChildren([execs, terminal, processes, files]) };
