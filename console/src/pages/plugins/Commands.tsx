import { useQueries } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { path } from "@skerry/client";
import { useState } from "react";
import { all } from "../../ui/all";
import { Empty } from "../../ui/Empty";
import { Failure } from "../../ui/Failure";
import { Field } from "../../ui/Field";
import { Shown } from "../../ui/Shown";
import { Skeleton } from "../../ui/Skeleton";
import { pluginsKey, type Command, type Plugin } from "./data";

const most = 1_000;

/** What users may type: the commands of plugins that are on, and the skills of these that people may call. */
export function Commands({ plugins }: { plugins: Plugin[] }) {
  const [words, setWords] = useState("");
  const on = plugins.filter((p) => p.enabled && p.commands.length + p.skills.length > 0).slice(0, 200);
  const lists = useQueries({
    queries: on.map((p) => ({
      queryKey: [...pluginsKey, "commands", p.name],
      queryFn: ({ signal }: { signal: AbortSignal }) => all<Command>(`${path("plugins", p.name)}/commands`, signal, { skills: true }),
      staleTime: 30_000,
    })),
  });
  const items = on.flatMap((p, i) => (lists[i]?.data ?? []).map((c) => ({ ...c, plugin: p.name, typed: `/${p.name}:${c.name}` })));
  const wanted = words.toLowerCase();
  const fits = items.filter((c) => `${c.typed}\n${c.description}`.toLowerCase().includes(wanted));
  const failed = lists.find((l) => l.isError);
  if (lists.some((l) => l.isPending)) return <Skeleton label="Commands are loading" />;
  return (
    <section className="scroll commands" aria-label="Commands">
      <p className="hint">
        A user types these in front of a message. Your program sends each message of a user through <code>POST /api/threads/{"{t}"}/commands</code>, which puts the text of the command in its place.
      </p>
      {items.length > 10 && <Field hideLabel label="Find a command" placeholder="Part of a name or a description" value={words} onChange={setWords} />}
      {failed !== undefined && <Failure error={failed.error} what="Not all commands can be listed" />}
      {items.length === 0 ? (
        <Empty title="No plugin that is on has a command" />
      ) : (
        <ul className="rows" aria-label="What users may type">
          {fits.slice(0, most).map((c) => (
            <li key={`${c.typed} ${c.kind}`}>
              <div className="line">
                <Link to="/plugins" search={{ plugin: c.plugin }} className="mono stretched">
                  <Shown>{c.typed}</Shown>
                </Link>
                <code className="muted">
                  <Shown>{c.argument_hint}</Shown>
                </code>
                {c.kind === "skill" && <span className="tag">skill</span>}
                {c.hidden === true && <span className="tag">for people only</span>}
              </div>
              <span className="muted">
                <Shown>{c.description}</Shown>
              </span>
            </li>
          ))}
        </ul>
      )}
      {items.length > 0 && fits.length === 0 && <p className="hint">No command fits.</p>}
    </section>
  );
}
