import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { SkerryError } from "@skerry/client";
import { useState } from "react";
import { session, usePrincipal } from "../../session/session";
import { Area } from "../../ui/Area";
import { Button } from "../../ui/Button";
import { Choice } from "../../ui/Choice";
import { Diff } from "../../ui/Diff";
import { Fact } from "../../ui/Fact";
import { Failure } from "../../ui/Failure";
import { Time } from "../../ui/format";
import { Skeleton } from "../../ui/Skeleton";
import { useTitle } from "../../ui/title";
import { Past } from "./Past";
import type { Scope } from "./route";
import "./policy.css";

const route = getRouteApi("/app/policy");

/** GET /api/policy. */
interface Rules {
  scope: Scope;
  source: "built-in" | "file" | "none";
  text: string;
  digest: string;
  loaded_at?: string;
  problem?: string;
}

const scopeChoices = [
  { id: "server", label: "Rules of the server" },
  { id: "tenant", label: "Rules of the tenant" },
] as const;

const sources: Record<Rules["source"], string> = { "built-in": "built in", file: "a file", none: "none of its own" };

export function PolicyPage() {
  useTitle("Policy");
  const me = usePrincipal();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const scope: Scope = search.scope ?? (me.operator ? "server" : "tenant");
  const rules = useQuery({
    queryKey: ["policy", scope],
    queryFn: ({ signal }) => session.client.call<Rules>({ method: "GET", path: "/api/policy", query: { scope } }, { signal }),
  });
  return (
    <div className="page">
      <div className="page-head">
        <h1>Policy</h1>
        {me.operator && <Choice label="Whose rules" value={scope} options={scopeChoices} onChange={(s) => void navigate({ search: (now) => ({ ...now, scope: s }) })} />}
      </div>
      {rules.isPending && <Skeleton rows={6} label="The rules are loading" />}
      {rules.isError && <Failure error={rules.error} what="The rules cannot be shown" />}
      {rules.data !== undefined && <Editor key={`${rules.data.scope} ${rules.data.digest}`} rules={rules.data} />}
    </div>
  );
}

function Editor({ rules }: { rules: Rules }) {
  const { view } = route.useSearch();
  const known = useQueryClient();
  const [text, setText] = useState(rules.text);
  const changed = text !== rules.text;
  const save = useMutation({
    mutationFn: () => session.client.call<Rules>({ method: "PUT", path: "/api/policy", query: { scope: rules.scope }, body: { text, digest: rules.digest } }),
    onSuccess: (now) => known.setQueryData(["policy", rules.scope], now),
  });
  const overtaken = save.error instanceof SkerryError && save.error.status === 409;
  return (
    <>
      <dl className="facts">
        <Fact name="They come from">{sources[rules.source]}</Fact>
        {rules.digest !== "" && (
          <Fact name="Digest">
            <code>{rules.digest}</code>
          </Fact>
        )}
        {rules.loaded_at !== undefined && (
          <Fact name="In force">
            <Time at={rules.loaded_at} />
          </Fact>
        )}
      </dl>
      {rules.problem !== undefined && (
        <div className="failure" role="alert">
          <strong>The file does not count: the rules from before do</strong>
          <p>{rules.problem}</p>
        </div>
      )}
      <nav aria-label="Parts of the policy" className="tabs">
        <Link from="/policy" to="/policy" search={({ view: _, ...s }) => s} activeOptions={{ exact: true, includeSearch: false }} data-status={view === undefined ? "active" : "inactive"}>
          Rules
        </Link>
        <Link from="/policy" to="/policy" search={(s) => ({ ...s, view: "past" as const })} activeOptions={{ exact: true, includeSearch: true }} data-status={view === "past" ? "active" : "inactive"}>
          {changed ? "Try the change on past calls" : "Past calls"}
        </Link>
      </nav>
      {view === "past" ? (
        <Past text={text} changed={changed} scope={rules.scope} />
      ) : (
        <section className="policy" aria-label="The rules">
          <Area
            label={rules.scope === "server" ? "Rules of all tenants, as YAML" : "Rules of the tenant, as YAML: they can only narrow those of the server"}
            value={text}
            onChange={setText}
            rows={Math.min(32, Math.max(12, text.split("\n").length + 1))}
            hint="Each rule has an id, an effect (allow, deny, require_approval), what it fits (match), and when. docs/policy.md has all of it."
            maxLength={1 << 18}
          />
          {changed && (
            <>
              <h2>What you change</h2>
              <Diff before={rules.text} after={text} label="What you change" />
            </>
          )}
          {save.isError && <Failure error={save.error} what={overtaken ? "Somebody else changed the rules meanwhile: nothing was saved" : "Nothing was saved"} />}
          <div className="line">
            <Button kind="primary" isDisabled={!changed || save.isPending} onPress={() => save.mutate()}>
              {save.isPending ? "Saving…" : "Save the rules"}
            </Button>
            {changed && <Button onPress={() => setText(rules.text)}>Undo the change</Button>}
            {overtaken && <Button onPress={() => void known.invalidateQueries({ queryKey: ["policy"] })}>Load theirs</Button>}
            {changed && <span className="hint">Try it on past calls before you save it.</span>}
          </div>
        </section>
      )}
    </>
  );
}
