import { getRouteApi, Link } from "@tanstack/react-router";
import { useMutation, useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useCallback, useState } from "react";
import { session } from "../../session/session";
import { Button } from "../../ui/Button";
import { Empty } from "../../ui/Empty";
import { Failure } from "../../ui/Failure";
import { Time } from "../../ui/format";
import { Skeleton } from "../../ui/Skeleton";

const route = getRouteApi("/app/threads/$thread/terminal");
const Screen = lazy(() => import("./Screen"));

// A shell of an image that may lack bash. The longest time that an exec may take.
const shell = 'exec "$(command -v bash || echo sh)"';
const longest = 3600;

export function TerminalTab() {
  const { thread } = route.useParams();
  const { exec } = route.useSearch();
  const navigate = route.useNavigate();
  const [ended, setEnded] = useState<{ exec: string; how: string }>();
  const start = useMutation({
    mutationFn: () => session.client.thread(thread).start({ command: shell, pty: { cols: 100, rows: 30 }, timeout_s: longest }),
    onSuccess: (e) => navigate({ search: { exec: e.id } }),
  });
  const kill = useMutation({ mutationFn: (id: string) => session.client.thread(thread).execById(id).kill() });
  const onEnd = useCallback((id: string, how: string) => setEnded({ exec: id, how }), []);
  const open = useQuery({
    queryKey: ["thread", "", thread, "execs"],
    queryFn: ({ signal }) => session.client.thread(thread).execs({ signal }),
    select: (list) => list.filter((e) => e.terminal === true && e.status === "running"),
    enabled: exec === undefined,
  });
  const over = ended !== undefined && ended.exec === exec;
  const begin = (
    <Button kind="primary" isDisabled={start.isPending} onPress={() => start.mutate()}>
      {start.isPending ? "Starting…" : exec === undefined ? "Start a terminal" : "Start another"}
    </Button>
  );
  return (
    <section className="terminal-tab" aria-label="Terminal">
      {start.isError && <Failure error={start.error} what="The terminal cannot be started" />}
      {kill.isError && <Failure error={kill.error} what="The terminal cannot be ended" />}
      {exec === undefined ? (
        <Empty title="No terminal is shown">
          <p>It starts a shell in the sandbox, for an hour at most. The audit log records it as an exec of yours.</p>
          {begin}
          {open.data !== undefined && open.data.length > 0 && (
            <>
              <p>These are open:</p>
              <ul className="plain">
                {open.data.map((e) => (
                  <li key={e.exec_id}>
                    <Link to="/threads/$thread/terminal" params={{ thread }} search={{ exec: e.exec_id }}>
                      Join the one of <Time at={e.started_at} />
                    </Link>
                  </li>
                ))}
              </ul>
            </>
          )}
        </Empty>
      ) : (
        <>
          <div className="terminal-bar">
            <span className="hint">
              <kbd>Shift</kbd> <kbd>Esc</kbd> leaves the terminal. It goes on when you close this page.
            </span>
            <div className="line">
              {over && <span role="status">{ended.how}</span>}
              {over ? (
                begin
              ) : (
                <Button kind="danger" isDisabled={kill.isPending} onPress={() => kill.mutate(exec)}>
                  End terminal
                </Button>
              )}
            </div>
          </div>
          <Suspense fallback={<Skeleton rows={8} label="The terminal is loading" />}>
            <Screen key={exec} thread={thread} exec={exec} onEnd={onEnd} />
          </Suspense>
        </>
      )}
    </section>
  );
}
