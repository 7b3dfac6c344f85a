import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { Button } from "../../ui/Button";
import { Failure } from "../../ui/Failure";
import { Shown } from "../../ui/Shown";
import { Skeleton } from "../../ui/Skeleton";
import { ServerState } from "../tools/ServerState";
import { useOwned, type Owned } from "./owned";
import "../../ui/parts.css";

const route = getRouteApi("/app/threads/$thread/agent");

/** What an agent of this thread is told, and which tools and skills it has now. */
export function Agent() {
  const { thread } = route.useParams();
  const owned = useOwned(thread);
  const prompt = useQuery({ queryKey: [...owned.known, "agent", "prompt"], queryFn: ({ signal }) => owned.thread.prompt({ signal }) });
  const skills = useQuery({ queryKey: [...owned.known, "agent", "skills"], queryFn: ({ signal }) => owned.thread.skills.search(undefined, { signal }) });
  const servers = useQuery({ queryKey: [...owned.known, "agent", "servers"], queryFn: ({ signal }) => owned.thread.tools.servers({ signal }) });
  return (
    <section className="scroll" aria-label="What the agent has" tabIndex={0}>
      <Part title="Tools to register" error={prompt.error} pending={prompt.isPending} hint={prompt.data === undefined ? "" : `Mode ${prompt.data.mode}. An agent gets these with its prompt.`}>
        {prompt.data !== undefined && (
          <ul className="rows" aria-label="Tools to register">
            {prompt.data.tools.map((t) => (
              <li key={t.name}>
                <span>
                  <span className="mono">
                    <Shown>{t.name}</Shown>
                  </span>
                  {t.defer_loading === true && <span className="muted"> only where the provider searches tools itself</span>}
                </span>
                <span className="muted one-line">
                  <Shown>{t.description.slice(0, 300)}</Shown>
                </span>
              </li>
            ))}
          </ul>
        )}
      </Part>
      <Active owned={owned} />
      <Part title="MCP servers" error={servers.error} pending={servers.isPending} none={servers.data?.servers.length === 0 ? "No server is connected to it." : undefined}>
        <ul className="rows" aria-label="MCP servers of the thread">
          {servers.data?.servers.map((s) => (
            <li key={s.name}>
              {owned.of === undefined ? (
                <Link to="/tools" search={{ thread, server: s.name }} className="stretched">
                  <Shown>{s.name}</Shown>
                </Link>
              ) : (
                <Shown>{s.name}</Shown>
              )}
              <span className="line">
                <ServerState state={s.state} /> <span className="muted num">{s.tool_count} tools</span>
              </span>
            </li>
          ))}
        </ul>
      </Part>
      <Part title="Skills" error={skills.error} pending={skills.isPending} none={skills.data?.length === 0 ? "No skill is on in it." : undefined}>
        <ul className="rows" aria-label="Skills of the thread">
          {skills.data?.map((s) => (
            <li key={s.name}>
              <strong>
                <Shown>{s.name}</Shown>
              </strong>
              <span className="muted one-line">
                <Shown>{s.description.slice(0, 300)}</Shown>
              </span>
            </li>
          ))}
        </ul>
      </Part>
      {prompt.data !== undefined && (
        <details className="folded">
          <summary>The text of the prompt</summary>
          <pre className="output short" tabIndex={0} role="region" aria-label="Text of the prompt">
            <Shown>{prompt.data.text}</Shown>
          </pre>
        </details>
      )}
    </section>
  );
}

function Part({ title, hint, error, pending, none, children }: { title: string; hint?: string; error: unknown; pending: boolean; none?: string | undefined; children: ReactNode }) {
  return (
    <>
      <h2>{title}</h2>
      {hint !== undefined && hint !== "" && <p className="hint">{hint}</p>}
      {pending ? <Skeleton rows={2} label={`${title}: loading`} /> : error !== null ? <Failure error={error} what="It cannot be listed" /> : none !== undefined ? <p className="hint">{none}</p> : children}
    </>
  );
}

/** Tools that a search showed the agent in full. Each costs room in what the agent reads, so one can be put away. */
function Active({ owned }: { owned: Owned }) {
  const known = useQueryClient();
  const info = useQuery({ queryKey: [...owned.known, "info"], queryFn: ({ signal }) => owned.thread.info({ signal }) });
  const away = useMutation({
    mutationFn: (tool: string) => owned.thread.tools.putAway(tool),
    onSettled: () => known.invalidateQueries({ queryKey: owned.known }),
  });
  const tools = info.data?.active_tools ?? [];
  return (
    <Part title="Active tools" hint="A search of the agent showed these in full, or a caller activated them by name." error={info.error} pending={info.isPending} none={tools.length === 0 ? "None." : undefined}>
      {away.isError && <Failure error={away.error} what="The tool cannot be put away" />}
      <ul className="rows" aria-label="Active tools">
        {tools.map((t) => (
          <li key={t}>
            <span className="line">
              <span className="mono">
                <Shown>{t}</Shown>
              </span>
              <Button kind="quiet" isDisabled={away.isPending} onPress={() => away.mutate(t)} aria-label={`Put ${t} away`}>
                Put away
              </Button>
            </span>
          </li>
        ))}
      </ul>
    </Part>
  );
}
