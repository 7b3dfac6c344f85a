import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Empty } from "../../ui/Empty";
import { Failure } from "../../ui/Failure";
import { Findings } from "../../ui/Findings";
import { Shown } from "../../ui/Shown";
import { Skeleton } from "../../ui/Skeleton";
import { toolsKey, toolsOf, written, type Server, type ServerTool } from "./data";
import { atServer, type ToolsSearch } from "./route";
import { Schema } from "./Schema";
import { TryOut } from "./TryOut";

export function ToolDetail({ thread, server, name, view }: { thread: string; server: Server; name: string; view: ToolsSearch["view"] }) {
  const list = useQuery({
    queryKey: toolsKey(thread, server),
    placeholderData: keepPreviousData,
    queryFn: ({ signal }) => toolsOf(thread, server, signal),
    staleTime: 10_000,
  });
  const tool = list.data?.find((t) => t.short_name === name);
  return (
    <section className="split-detail" aria-label="One tool">
      <p className="crumbs">
        <Link from="/tools" to="/tools" search={(s: ToolsSearch) => atServer(s, server.name)} activeOptions={{ exact: true, includeSearch: true }}>
          <Shown>{server.name}</Shown>
        </Link>
        <span aria-hidden="true">/</span>
      </p>
      <div className="pane-head">
        <h2 className="mono">
          <Shown>{name}</Shown>
        </h2>
      </div>
      {list.isPending && <Skeleton rows={5} label="The tool is loading" />}
      {list.isError && <Failure error={list.error} what="The tool cannot be shown" />}
      {list.isSuccess && tool === undefined && (
        <Empty title="The server has no such tool">
          <p>It may have changed: an operator sees changed tools in their own part of this page.</p>
        </Empty>
      )}
      {tool !== undefined && <Known thread={thread} tool={tool} view={view} />}
    </section>
  );
}

const parts = [
  { view: undefined, label: "Parameters" },
  { view: "try", label: "Try it" },
  { view: "json", label: "JSON" },
] as const;

function Known({ thread, tool, view }: { thread: string; tool: ServerTool; view: ToolsSearch["view"] }) {
  return (
    <>
      <nav className="tabs" aria-label="Parts of the tool">
        {parts.map((p) => (
          <Link
            key={p.label}
            from="/tools"
            to="/tools"
            search={({ view: _, ...s }: ToolsSearch) => ({ ...s, ...(p.view === undefined ? {} : { view: p.view }) })}
            activeOptions={{ exact: true, includeSearch: true }}
            data-status={view === p.view ? "active" : undefined}
            aria-current={view === p.view ? "page" : undefined}
          >
            {p.label}
          </Link>
        ))}
      </nav>
      <div className="scroll" tabIndex={0} role="group" aria-label="About the tool">
        {tool.quarantined === true && (
          <p className="failure">
            <strong>No thread has this tool</strong>
            <span>It changed, or was added later, and waits for an approval: see Changed tools.</span>
          </p>
        )}
        {view === undefined && <About tool={tool} />}
        {view === "try" && <TryOut thread={thread} tool={tool} />}
        {view === "json" && (
          <pre className="output" tabIndex={0} role="region" aria-label="The tool as JSON">
            <Shown>{written({ name: tool.short_name, description: tool.description, inputSchema: tool.parameters, outputSchema: tool.output })}</Shown>
          </pre>
        )}
      </div>
    </>
  );
}

function About({ tool }: { tool: ServerTool }) {
  return (
    <>
      <p className="pre">{tool.description === undefined || tool.description === "" ? <span className="muted">It has no description.</span> : <Shown>{tool.description}</Shown>}</p>
      <h3>Parameters</h3>
      <Schema schema={tool.parameters} label="Parameters" none="It takes none." />
      {tool.output !== undefined && (
        <>
          <h3>Result</h3>
          <Schema schema={tool.output} label="Fields of the result" none="An object of any fields." />
        </>
      )}
      {tool.findings !== undefined && tool.findings.length > 0 && (
        <>
          <h3>What the scan found</h3>
          <p className="hint num">Score {tool.score ?? 0}: with 10 and more, look before agents use it.</p>
          <Findings list={tool.findings} />
        </>
      )}
      <p className="hint">
        Agents call it <code><Shown>{tool.name}</Shown></code>
        {tool.wrapper_path !== undefined && tool.wrapper_path !== "" && (
          <>
            ; code finds it in{" "}
            <code>
              <Shown>{tool.wrapper_path}</Shown>
            </code>
          </>
        )}
        . What is said here is the server&apos;s own: do not trust it.
      </p>
    </>
  );
}
