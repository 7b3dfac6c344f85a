import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { app } from "../../routes";

export const views = ["findings", "source", "edit"] as const;

export interface SkillsSearch {
  skill?: string;
  /** The text as it reads when absent. */
  view?: (typeof views)[number];
  /** Words that the names or descriptions have. */
  q?: string;
  /** How to install one. */
  add?: true;
}

const text = (v: unknown, most: number): string | undefined => (typeof v === "string" && v !== "" && v.length <= most ? v : undefined);

const route = createRoute({
  getParentRoute: () => app,
  path: "/skills",
  validateSearch: (s: Record<string, unknown>): SkillsSearch => {
    const out: SkillsSearch = {};
    const skill = text(s["skill"], 256);
    if (skill !== undefined) out.skill = skill;
    const view = views.find((v) => v === s["view"]);
    if (view !== undefined) out.view = view;
    const q = text(s["q"], 200);
    if (q !== undefined) out.q = q;
    if (s["add"] === true) out.add = true;
    return out;
  },
  component: lazyRouteComponent(() => import("./SkillsPage"), "SkillsPage"),
});

export const skillsPage = { route, nav: { label: "Skills", to: "/skills", roles: ["agent", "developer", "admin"] } } as const;
