import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { app } from "../../routes";
import { ages, sizes, states, type Age, type Size, type StateName } from "./states";

export interface ThreadsSearch {
  state?: StateName;
  /** Of whose threads: a user, or * for all of the tenant. Without it an administrator sees all, and others their own. */
  user?: string;
  template?: string;
  /** Text in the id, the user or a label. */
  q?: string;
  age?: Age;
  /** The files took at least so many MiB when they were last measured. */
  disk?: Size;
  sort?: "thread_id" | "disk_bytes";
  /** key=value; all have to fit. */
  label?: string[];
}

const route = createRoute({
  getParentRoute: () => app,
  path: "/threads",
  validateSearch: (s: Record<string, unknown>): ThreadsSearch => {
    const out: ThreadsSearch = {};
    const state = states.find((name) => name === s["state"]);
    if (state !== undefined) out.state = state;
    const age = ages.find((name) => name === s["age"]);
    if (age !== undefined) out.age = age;
    const disk = sizes.find((mib) => String(mib) === String(s["disk"]));
    if (disk !== undefined) out.disk = disk;
    if (s["sort"] === "thread_id" || s["sort"] === "disk_bytes") out.sort = s["sort"];
    for (const [name, most] of [
      ["user", 128],
      ["template", 128],
      ["q", 200],
    ] as const) {
      const v = s[name];
      if ((typeof v === "string" || typeof v === "number") && String(v) !== "" && String(v).length <= most) out[name] = String(v);
    }
    const label = (Array.isArray(s["label"]) ? s["label"] : [s["label"]]).filter((l): l is string => typeof l === "string" && /^[^=]+=/.test(l)).slice(0, 16);
    if (label.length > 0) out.label = label;
    return out;
  },
  component: lazyRouteComponent(() => import("./ThreadsPage"), "ThreadsPage"),
});

export const threadsPage = { route, nav: { label: "Threads", to: "/threads", roles: ["agent", "developer", "admin"] } } as const;
