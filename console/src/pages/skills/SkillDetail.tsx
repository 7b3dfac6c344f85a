import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { path, SkerryError } from "@skerry/client";
import { useState } from "react";
import { session, usePrincipal } from "../../session/session";
import { Area } from "../../ui/Area";
import { Button } from "../../ui/Button";
import { Confirm } from "../../ui/Confirm";
import { Diff } from "../../ui/Diff";
import { Empty } from "../../ui/Empty";
import { Fact } from "../../ui/Fact";
import { Failure } from "../../ui/Failure";
import { Findings } from "../../ui/Findings";
import { Markdown, parts } from "../../ui/Markdown";
import { Shown, visible } from "../../ui/Shown";
import { Skeleton } from "../../ui/Skeleton";
import { Switch } from "../../ui/Switch";
import { loads, readSkill, skillsKey, type Skill } from "./data";
import type { SkillsSearch } from "./route";
import { Runs, SkillState } from "./states";

const route = getRouteApi("/app/skills");

export function SkillDetail({ name, view, changes }: { name: string; view: SkillsSearch["view"]; changes: boolean }) {
  const skill = useQuery({ queryKey: [...skillsKey, "one", name], queryFn: ({ signal }) => readSkill(name, signal) });
  const missing = skill.error instanceof SkerryError && skill.error.status === 404;
  return (
    <section className="split-detail" aria-label="One skill">
      {skill.isPending && <Skeleton rows={6} label="The skill is loading" />}
      {missing && (
        <Empty title="You have no such skill">
          <p>
            <Shown>{name}</Shown> was deleted, or is another user&apos;s.
          </p>
        </Empty>
      )}
      {skill.isError && !missing && <Failure error={skill.error} what="The skill cannot be shown" />}
      {skill.data !== undefined && <Known skill={skill.data} view={view} changes={changes} />}
    </section>
  );
}

function Known({ skill, view, changes }: { skill: Skill; view: SkillsSearch["view"]; changes: boolean }) {
  const known = useQueryClient();
  const navigate = route.useNavigate();
  const { operator } = usePrincipal();
  const own = skill.category === "custom";
  const fresh = () => known.invalidateQueries({ queryKey: skillsKey });
  const flip = useMutation({
    mutationFn: ({ on, everybody }: { on: boolean; everybody?: boolean }) => session.client.call<Skill>({ method: "PUT", path: path("skills", skill.name), body: { enabled: on, ...(everybody === true ? { for: "everybody" } : {}) } }),
    onSettled: fresh,
  });
  const remove = useMutation({
    mutationFn: () => session.client.call({ method: "DELETE", path: path("skills", "custom", skill.name) }),
    onSuccess: async () => {
      await navigate({ search: ({ q }: SkillsSearch) => (q === undefined ? {} : { q }) });
      await fresh();
    },
  });
  const errors = skill.findings.length;
  const tabs: { view: SkillsSearch["view"]; label: string }[] = [
    { view: undefined, label: "Text" },
    { view: "findings", label: errors === 0 ? "Findings" : `Findings (${errors})` },
    { view: "source", label: "Source" },
    ...(own && changes ? [{ view: "edit" as const, label: "Edit" }] : []),
  ];
  const shown = view === "edit" && !(own && changes) ? undefined : view;
  return (
    <>
      <div className="pane-head">
        <h2>
          <Shown>{skill.name}</Shown>
        </h2>
        <div className="line">
          {changes && loads(skill) ? <Switch label={skill.enabled ? "On for you" : "Off for you"} isSelected={flip.isPending && flip.variables.everybody !== true ? flip.variables.on : skill.enabled} onChange={(on) => !flip.isPending && flip.mutate({ on })} /> : <SkillState skill={skill} />}
          {changes && own && (
            <Confirm label="Delete…" title={`Delete ${visible(skill.name)}?`} yes="Delete" isDisabled={remove.isPending} onConfirm={() => remove.mutate()}>
              <p>All of its files go. Your sandboxes lose it at once.</p>
            </Confirm>
          )}
        </div>
      </div>
      {flip.isError && <Failure error={flip.error} what="It was not switched" />}
      {remove.isError && <Failure error={remove.error} what="It was not deleted" />}
      <nav className="tabs" aria-label="Parts of the skill">
        {tabs.map((t) => (
          <Link key={t.label} from="/skills" to="/skills" search={({ view: _, ...s }: SkillsSearch) => ({ ...s, ...(t.view === undefined ? {} : { view: t.view }) })} activeOptions={{ exact: true, includeSearch: true }} data-status={shown === t.view ? "active" : undefined} aria-current={shown === t.view ? "page" : undefined}>
            {t.label}
          </Link>
        ))}
      </nav>
      <div className="scroll" tabIndex={0} role="group" aria-label="About the skill">
        {shown === undefined && <About skill={skill} />}
        {shown === "findings" && <Findings list={skill.findings} none="Neither the check of SKILL.md nor the scan of its files found anything." />}
        {shown === "source" && (
          <pre className="output" tabIndex={0} role="region" aria-label="SKILL.md as it is">
            {skill.text === undefined ? <span className="muted">It cannot be read, or has more than 1 MiB.</span> : <Shown>{skill.text}</Shown>}
          </pre>
        )}
        {shown === "edit" && (skill.text === undefined ? <p className="hint">Its text cannot be read, so it cannot be changed here.</p> : <Edit key={skill.digest} skill={skill} text={skill.text} onSaved={fresh} />)}
        {shown === undefined && operator && changes && loads(skill) && (
          <details className="folded">
            <summary>For all users</summary>
            <div className="line">
              <Button isDisabled={flip.isPending} onPress={() => flip.mutate({ on: true, everybody: true })}>
                Switch on for everybody
              </Button>
              <Button isDisabled={flip.isPending} onPress={() => flip.mutate({ on: false, everybody: true })}>
                Switch off for everybody
              </Button>
              <span className="hint">A user&apos;s own choice counts more.</span>
            </div>
          </details>
        )}
      </div>
    </>
  );
}

function About({ skill }: { skill: Skill }) {
  const text = skill.text === undefined ? undefined : parts(skill.text);
  const { missing, unsure } = skill.runnable;
  return (
    <>
      {skill.description === "" ? (
        <p className="failure">
          <strong>This skill does not load</strong>
          <span>{skill.findings.find((f) => f.severity === "error")?.message ?? "The findings say why."}</span>
        </p>
      ) : (
        <p>
          <Shown>{skill.description}</Shown>
        </p>
      )}
      <dl className="facts">
        <Fact name="From">
          <Shown>{skill.category}</Shown>
        </Fact>
        <Fact name="In a sandbox here">
          <Runs skill={skill} />
        </Fact>
        <Fact name="Scripts">{skill.trusted ? "run without an approval" : "wait for an approval"}</Fact>
        {skill.template !== "" && (
          <Fact name="Template">
            <Shown>{skill.template}</Shown>
          </Fact>
        )}
        {skill.license !== "" && (
          <Fact name="License">
            <Shown>{skill.license}</Shown>
          </Fact>
        )}
        {skill.digest !== "" && (
          <Fact name="Digest">
            <code title={skill.digest}>{skill.digest.slice(0, 19)}…</code>
          </Fact>
        )}
      </dl>
      {missing.length > 0 && (
        <div className="failure">
          <strong>Its sandbox lacks</strong>
          <ul className="plain">
            {missing.slice(0, 50).map((m) => (
              <li key={m} className="mono">
                <Shown>{m}</Shown>
              </li>
            ))}
          </ul>
        </div>
      )}
      {skill.runnable.template === "unknown" && unsure !== undefined && unsure.length > 0 && (
        <details className="folded">
          <summary>Why it is not known whether it runs</summary>
          <ul className="plain hint">
            {unsure.slice(0, 50).map((u) => (
              <li key={u}>
                <Shown>{u}</Shown>
              </li>
            ))}
          </ul>
        </details>
      )}
      {skill.compatibility !== "" && (
        <p className="hint">
          It says it needs: <Shown>{skill.compatibility}</Shown>
        </p>
      )}
      {skill.allowed_tools.length > 0 && (
        <p className="hint">
          Tools that it approves beforehand:{" "}
          {skill.allowed_tools.slice(0, 60).map((t) => (
            <code key={t} className="skill-tool">
              <Shown>{t}</Shown>
            </code>
          ))}
        </p>
      )}
      {text === undefined ? <p className="hint">Its text cannot be read.</p> : <Markdown text={text.body} label="SKILL.md" />}
    </>
  );
}

/** The text of one's own skill, and what changes in it. */
function Edit({ skill, text, onSaved }: { skill: Skill; text: string; onSaved: () => Promise<void> }) {
  const [value, setValue] = useState(text);
  const save = useMutation({
    mutationFn: async () => {
      // The server replaces whatever is there, so somebody else's change would be lost unseen.
      const now = await readSkill(skill.name);
      if (now.digest !== skill.digest) throw new Error("The skill was changed meanwhile. Copy your text, and load the page again.");
      await session.client.call({ method: "PUT", path: path("skills", "custom", skill.name), content: value });
    },
    onSuccess: onSaved,
  });
  return (
    <>
      <Area label="SKILL.md" value={value} onChange={setValue} rows={20} maxLength={1 << 20} hint="Its other files stay as they are. A text with an error in its frontmatter is refused." />
      {value !== text && <Diff before={text} after={value} label="What you change" />}
      {save.isError && <Failure error={save.error} what="It was not saved" />}
      {save.isSuccess && value === text && <p className="note" role="status">It is saved, and in your sandboxes.</p>}
      <div className="line">
        <Button kind="primary" isDisabled={value === text || save.isPending} onPress={() => save.mutate()}>
          {save.isPending ? "Saving…" : "Save"}
        </Button>
        <Button isDisabled={value === text || save.isPending} onPress={() => setValue(text)}>
          Undo
        </Button>
      </div>
    </>
  );
}
