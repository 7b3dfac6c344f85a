import { State } from "../../ui/State";
import { loads, type Skill } from "./data";

export function SkillState({ skill }: { skill: Skill }) {
  if (!loads(skill)) return <State name="broken" label="does not load" tone="bad" />;
  return skill.enabled ? <State name="on" tone="good" /> : <State name="off" tone="none" />;
}

const runs = { yes: ["runs", "good"], no: ["lacks parts", "bad"], unknown: ["not known", "none"] } as const;

export function Runs({ skill }: { skill: Skill }) {
  const [label, tone] = runs[skill.runnable.template];
  return <State name={label} tone={tone} />;
}
