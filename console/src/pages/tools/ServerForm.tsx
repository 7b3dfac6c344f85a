import { useMutation } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { path } from "@skerry/client";
import { useState, type FormEvent } from "react";
import { session } from "../../session/session";
import { Area } from "../../ui/Area";
import { Button } from "../../ui/Button";
import { Choice } from "../../ui/Choice";
import { Diff } from "../../ui/Diff";
import { pretty } from "../../ui/exact";
import { Failure } from "../../ui/Failure";
import { Field } from "../../ui/Field";
import { Shown } from "../../ui/Shown";
import { exactBody, isObject, type Server } from "./data";
import { useFresh } from "./fresh";
import type { ToolsSearch } from "./route";

const route = getRouteApi("/app/tools");

type Kind = "http" | "program" | "sandbox";

const kinds: readonly { id: Kind; label: string }[] = [
  { id: "http", label: "At an address (HTTP)" },
  { id: "sandbox", label: "A program, in a sandbox of its own" },
  { id: "program", label: "A program on the host" },
];

const beginnings: Record<Kind, object> = {
  http: { type: "http", url: "https://", description: "" },
  sandbox: { command: "npx", args: ["-y", "PACKAGE"], env: {}, sandbox: { egress: [] }, description: "" },
  program: { command: "node", args: ["/opt/mcp/server.js"], env: {}, description: "" },
};

/** The configuration of a server, for operators: a new one, or one that is there. */
export function ServerForm({ server, taken }: { server?: Server; taken: readonly string[] }) {
  const fresh = useFresh();
  const navigate = route.useNavigate();
  const before = server === undefined ? "" : pretty(server.config);
  const [name, setName] = useState(server?.name ?? "");
  const [kind, setKind] = useState<Kind>("http");
  const [text, setText] = useState(server === undefined ? pretty(beginnings.http) : before);
  const [error, setError] = useState<{ name?: string; text?: string }>({});
  const save = useMutation({
    mutationFn: (config: unknown) => session.client.call({ method: "PUT", path: path("mcp", "servers", name), body: config }),
    onSuccess: async () => {
      await fresh();
      void navigate({ search: ({ thread }: ToolsSearch) => ({ ...(thread === undefined ? {} : { thread }), server: name }) });
    },
  });
  const submit = (e: FormEvent) => {
    e.preventDefault();
    const wrong: typeof error = {};
    if (name.trim() === "") wrong.name = "The server needs a name.";
    else if (taken.includes(name)) wrong.name = "There is a server of this name. Change that one.";
    let config: unknown;
    try {
      config = exactBody(text);
      if (!isObject(config)) wrong.text = "The configuration has to be an object: {…}";
    } catch (err) {
      wrong.text = err instanceof Error ? err.message : String(err);
    }
    setError(wrong);
    if (wrong.name === undefined && wrong.text === undefined) save.mutate(config);
  };
  return (
    <section className="split-detail" aria-label={server === undefined ? "Add a server" : "Change the server"}>
      <div className="pane-head">
        <h2>{server === undefined ? "A new server" : <Shown>{server.name}</Shown>}</h2>
        <Link from="/tools" to="/tools" search={({ edit: _, ...s }: ToolsSearch) => s} activeOptions={{ exact: true, includeSearch: true }} className="button button-quiet">
          Cancel
        </Link>
      </div>
      <form className="scroll" onSubmit={submit} noValidate>
        {server === undefined && (
          <>
            <Field label="Name" value={name} onChange={(v) => setName(v.trim())} error={error.name} maxLength={256} autoComplete="off" />
            <div className="field">
              <span className="label" aria-hidden="true">
                Begin with
              </span>
              <Choice
                label="Where the server is"
                value={kind}
                options={kinds}
                onChange={(k) => {
                  setKind(k);
                  setText(pretty(beginnings[k]));
                }}
              />
            </div>
          </>
        )}
        <Area
          label="Configuration"
          value={text}
          onChange={setText}
          rows={Math.min(24, Math.max(8, text.split("\n").length + 1))}
          error={error.text}
          hint="JSON, as a value of mcpServers in extensions_config.json. Where it says ***, the stored secret stays. Better than a secret here: ${secret:NAME}."
          maxLength={1 << 18}
        />
        {server !== undefined && text !== before && (
          <>
            <h3>What you change</h3>
            <Diff before={before} after={text} label="What you change" />
          </>
        )}
        {save.isError && <Failure error={save.error} what="It was not saved" />}
        <div className="line">
          <Button type="submit" kind="primary" isDisabled={save.isPending || (server !== undefined && text === before)}>
            {save.isPending ? "Saving…" : server === undefined ? "Add the server" : "Save"}
          </Button>
          <span className="hint">It is of all users of all tenants.</span>
        </div>
      </form>
    </section>
  );
}
