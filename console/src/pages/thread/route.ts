import { createRoute, lazyRouteComponent, retainSearchParams } from "@tanstack/react-router";
import { app } from "../../routes";

const text = (v: unknown): string | undefined => (typeof v === "string" && v !== "" && v.length <= 4096 ? v : undefined);

/** A moment of an address, as the server takes it. */
function moment(v: unknown): string | undefined {
  const t = text(v);
  const at = t === undefined || t.length > 40 ? Number.NaN : Date.parse(t);
  return Number.isNaN(at) ? undefined : new Date(at).toISOString();
}

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

export interface TimelineSearch {
  from?: string;
  to?: string;
  view?: "list";
}

const timeline = createRoute({
  getParentRoute: () => thread,
  path: "/timeline",
  validateSearch: (s: Record<string, unknown>): TimelineSearch => {
    const from = moment(s["from"]);
    const to = moment(s["to"]);
    return { ...(from === undefined ? {} : { from }), ...(to === undefined || (from !== undefined && to <= from) ? {} : { to }), ...(s["view"] === "list" ? { view: "list" } : {}) };
  },
  component: lazyRouteComponent(() => import("./timeline/Timeline"), "Timeline"),
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

export interface FilesSearch {
  path?: string;
  /** As text, where it could be shown as something else. */
  as?: "text";
  edit?: true;
}

const files = createRoute({
  getParentRoute: () => thread,
  path: "/files",
  validateSearch: (s: Record<string, unknown>): FilesSearch => {
    const path = text(s["path"]);
    if (path === undefined || !path.startsWith("/")) return {};
    return { path, ...(s["as"] === "text" ? { as: "text" } : {}), ...(s["edit"] === true ? { edit: true } : {}) };
  },
  component: lazyRouteComponent(() => import("./files/Files"), "Files"),
});

const contexts = createRoute({
  getParentRoute: () => thread,
  path: "/contexts",
  validateSearch: (s: Record<string, unknown>): { context?: string } => {
    const context = text(s["context"]);
    return context === undefined || context.length > 128 ? {} : { context };
  },
  component: lazyRouteComponent(() => import("./contexts/Contexts"), "Contexts"),
});

const agent = createRoute({
  getParentRoute: () => thread,
  path: "/agent",
  component: lazyRouteComponent(() => import("./Agent"), "Agent"),
});

export const threadPage = { route: thread.addChildren([execs, timeline, terminal, processes, files, contexts, agent]) };
