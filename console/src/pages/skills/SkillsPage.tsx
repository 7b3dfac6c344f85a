import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { usePrincipal } from "../../session/session";
import { Empty } from "../../ui/Empty";
import { Failure } from "../../ui/Failure";
import { Field } from "../../ui/Field";
import { Worst } from "../../ui/Findings";
import { Grid, type Columns } from "../../ui/Grid";
import { Shown, visible } from "../../ui/Shown";
import { Skeleton } from "../../ui/Skeleton";
import { useTitle } from "../../ui/title";
import { listSkills, mayChange, skillsKey, type Skill } from "./data";
import { Install } from "./Install";
import type { SkillsSearch } from "./route";
import { SkillDetail } from "./SkillDetail";
import { Runs, SkillState } from "./states";
import "../../ui/parts.css";
import "./skills.css";

const route = getRouteApi("/app/skills");

const columns: Columns<Skill> = [
  {
    id: "name",
    header: "Skill",
    cell: ({ row }) => (
      <Link from="/skills" to="/skills" search={({ q }: SkillsSearch) => ({ ...(q === undefined ? {} : { q }), skill: row.original.name })} className="row-link" title={visible(row.original.name)}>
        <Shown>{row.original.name}</Shown>
      </Link>
    ),
  },
  { id: "state", header: "State", cell: ({ row }) => <SkillState skill={row.original} /> },
  { id: "runs", header: "Here", cell: ({ row }) => <Runs skill={row.original} /> },
  { id: "category", header: "From", cell: ({ row }) => <span className="muted">{<Shown>{row.original.category}</Shown>}</span> },
  { id: "findings", header: "Findings", cell: ({ row }) => <Worst list={row.original.findings} /> },
];

export function SkillsPage() {
  useTitle("Skills");
  const search = route.useSearch();
  const changes = mayChange(usePrincipal());
  const list = useQuery({ queryKey: [...skillsKey, "list"], queryFn: ({ signal }) => listSkills(signal), refetchInterval: 10_000 });
  const items = useMemo(() => {
    const words = (search.q ?? "").toLowerCase();
    return (list.data ?? []).filter((s) => `${s.name}\n${s.description}\n${s.category}`.toLowerCase().includes(words));
  }, [list.data, search.q]);
  const adding = search.add === true && changes;
  const open = search.skill !== undefined || adding;
  return (
    <div className="page page-fill">
      <div className="page-head">
        <h1>Skills</h1>
        <div className="line">
          <Filter key={search.q ?? ""} q={search.q ?? ""} />
          {changes && (
            <Link to="/skills" search={{ add: true }} activeOptions={{ exact: true, includeSearch: true }} className="button button-primary">
              Install a skill
            </Link>
          )}
        </div>
      </div>
      {list.isPending && <Skeleton label="Skills are loading" />}
      {list.isError && <Failure error={list.error} what="The skills cannot be listed" />}
      {list.isSuccess && list.data.length === 0 && !open && (
        <Empty title="You have no skill">
          <p>A skill is a folder with a SKILL.md: instructions for agents, with scripts.</p>
        </Empty>
      )}
      {list.isSuccess && (list.data.length > 0 || open) && (
        <div className={open ? "split split-skills" : "split split-one"}>
          <section className="split-list" aria-label="Skills">
            <Grid label="Skills" columns={columns} rows={items} rowId={(s) => s.name} shape="grid-skills" selected={search.skill} />
            {items.length === 0 && <p className="hint">No skill fits.</p>}
          </section>
          {adding ? <Install /> : search.skill !== undefined && <SkillDetail key={search.skill} name={search.skill} view={search.view} changes={changes} />}
        </div>
      )}
    </div>
  );
}

function Filter({ q }: { q: string }) {
  const navigate = route.useNavigate();
  const [value, setValue] = useState(q);
  return (
    <form
      role="search"
      aria-label="Skills"
      onSubmit={(e) => {
        e.preventDefault();
        void navigate({ search: ({ q: _, ...s }: SkillsSearch) => ({ ...s, ...(value.trim() === "" ? {} : { q: value.trim() }) }) });
      }}
    >
      <Field hideLabel label="Find a skill" placeholder="Name or words" value={value} onChange={setValue} maxLength={200} />
    </form>
  );
}
