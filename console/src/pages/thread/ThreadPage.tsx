import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, Link, Outlet, useNavigate } from "@tanstack/react-router";
import { SkerryError, type ThreadInfo } from "@skerry/client";
import { useState } from "react";
import { usePrincipal } from "../../session/session";
import { Button } from "../../ui/Button";
import { Confirm } from "../../ui/Confirm";
import { Empty } from "../../ui/Empty";
import { Failure } from "../../ui/Failure";
import { bytes, duration, Time } from "../../ui/format";
import { Skeleton } from "../../ui/Skeleton";
import { State } from "../../ui/State";
import { useTitle } from "../../ui/title";
import { useThreadEvents } from "./events";
import { useOwned, type Owned } from "./owned";

const route = getRouteApi("/app/threads/$thread");

export function ThreadPage() {
  const { thread } = route.useParams();
  useTitle(thread);
  const owned = useOwned(thread);
  const me = usePrincipal();
  const [followed, setFollowed] = useState(false);
  const info = useQuery({
    queryKey: [...owned.known, "info"],
    queryFn: ({ signal }) => owned.thread.info({ signal }),
    // Events tell of all but the size of files that processes write.
    refetchInterval: followed ? 60_000 : 5_000,
  });
  const open = useThreadEvents(owned, info.isSuccess);
  if (open !== followed) setFollowed(open);
  const missing = info.error instanceof SkerryError && info.error.status === 404;
  return (
    <div className="page page-fill">
      <nav aria-label="Where this is" className="crumbs">
        <Link to="/threads">Threads</Link>
      </nav>
      <div className="page-head">
        <h1>
          <bdi>{thread}</bdi>
        </h1>
        {info.data !== undefined && <Actions info={info.data} owned={owned} />}
      </div>
      {info.isPending && <Skeleton rows={3} label="The thread is loading" />}
      {missing && (
        <Empty title={owned.of === undefined ? "You have no thread of this id" : `${owned.of} has no thread of this id`}>
          <p>It was deleted, belongs to another user, or no call has made it yet.</p>
          <Link to="/threads">See your threads</Link>
        </Empty>
      )}
      {info.isError && !missing && <Failure error={info.error} what="The thread cannot be shown" />}
      {info.data !== undefined && (
        <>
          {owned.of !== undefined && (
            <p className="note">
              You act for <bdi>{owned.of}</bdi>. The audit log records it as done by <bdi>{me.actor}</bdi>.
            </p>
          )}
          <Facts info={info.data} />
          <nav aria-label="Parts of the thread" className="tabs">
            <Link to="/threads/$thread" params={{ thread }} activeOptions={{ exact: true, includeSearch: false }}>
              Execs
            </Link>
            <Link to="/threads/$thread/timeline" params={{ thread }} activeOptions={{ includeSearch: false }}>
              Timeline
            </Link>
            {owned.of === undefined && (
              <Link to="/threads/$thread/terminal" params={{ thread }} activeOptions={{ includeSearch: false }}>
                Terminal
              </Link>
            )}
            <Link to="/threads/$thread/processes" params={{ thread }} activeOptions={{ includeSearch: false }}>
              Processes
            </Link>
            <Link to="/threads/$thread/files" params={{ thread }} activeOptions={{ includeSearch: false }}>
              Files
            </Link>
            <Link to="/threads/$thread/contexts" params={{ thread }} activeOptions={{ includeSearch: false }}>
              Contexts
            </Link>
            <Link to="/threads/$thread/agent" params={{ thread }} activeOptions={{ includeSearch: false }}>
              Agent
            </Link>
          </nav>
          <Outlet />
        </>
      )}
    </div>
  );
}

function Facts({ info }: { info: ThreadInfo }) {
  const { sandbox } = info;
  return (
    <dl className="facts">
      <div>
        <dt>Sandbox</dt>
        <dd>{sandbox === undefined ? <span className="muted">none; the next exec starts one</span> : <State name={sandbox.state} />}</dd>
      </div>
      {sandbox !== undefined && (
        <>
          <div>
            <dt>Template</dt>
            <dd>{sandbox.template}</dd>
          </div>
          <div>
            <dt>Runs on</dt>
            <dd>
              {sandbox.driver}, {sandbox.runtime}
            </dd>
          </div>
        </>
      )}
      <div>
        <dt>Files</dt>
        <dd className="num">
          {bytes(info.workspace.bytes)} in {info.workspace.files}
        </dd>
      </div>
      {info.usage !== undefined && (
        <div>
          <dt>Used so far</dt>
          <dd className="num">
            {info.usage.execs} {info.usage.execs === 1 ? "exec" : "execs"} <span className="muted">in {duration(info.usage.exec_seconds * 1000)}</span>
          </dd>
        </div>
      )}
      <div>
        <dt>Owner</dt>
        <dd>
          <bdi>{info.user}</bdi> <span className="muted">of {info.tenant}</span>
        </dd>
      </div>
      <div>
        <dt>Last active</dt>
        <dd>
          <Time at={info.last_active_at} />
        </dd>
      </div>
      {sandbox?.env_names !== undefined && (
        <div>
          <dt>Environment</dt>
          <dd className="tags" title="Names of the variables that each exec has">
            {sandbox.env_names.map((name) => (
              <bdi key={name} className="tag">
                {name}
              </bdi>
            ))}
          </dd>
        </div>
      )}
      {Object.keys(info.labels).length > 0 && (
        <div>
          <dt>Labels</dt>
          <dd className="tags">
            {Object.entries(info.labels).map(([k, v]) => (
              <bdi key={k} className="tag">
                {k}={v}
              </bdi>
            ))}
          </dd>
        </div>
      )}
    </dl>
  );
}

type Action = "pause" | "resume" | "hibernate" | "release" | "delete" | "acquire";

const doing: Record<Action, string> = {
  pause: "The sandbox cannot be paused",
  resume: "The sandbox cannot be resumed",
  hibernate: "The sandbox cannot be hibernated",
  release: "The sandbox cannot be ended",
  delete: "The thread cannot be deleted",
  acquire: "The sandbox cannot be started",
};

function Actions({ info, owned }: { info: ThreadInfo; owned: Owned }) {
  const known = useQueryClient();
  const navigate = useNavigate();
  const [last, setLast] = useState<Action>("pause");
  const act = useMutation({
    mutationFn: async (action: Action) => {
      setLast(action);
      await owned.thread[action]();
    },
    onSuccess: (_, action) => (action === "delete" ? navigate({ to: "/threads", search: {} }) : undefined),
    onSettled: (_d, _e, action) => known.invalidateQueries({ queryKey: action === "delete" ? ["threads"] : owned.known }),
  });
  const state = info.sandbox?.state;
  return (
    <div className="actions">
      <div className="line" role="group" aria-label="Sandbox">
        {state === undefined && (
          <Button isDisabled={act.isPending} onPress={() => act.mutate("acquire")}>
            Start
          </Button>
        )}
        {state === "running" && (
          <Button isDisabled={act.isPending} onPress={() => act.mutate("pause")}>
            Pause
          </Button>
        )}
        {(state === "paused" || state === "hibernated") && (
          <Button isDisabled={act.isPending} onPress={() => act.mutate("resume")}>
            Resume
          </Button>
        )}
        {(state === "running" || state === "paused") && (
          <Button isDisabled={act.isPending} onPress={() => act.mutate("hibernate")}>
            Hibernate
          </Button>
        )}
        {state !== undefined && (
          <Confirm label="End sandbox…" title="End the sandbox?" yes="End sandbox" isDisabled={act.isPending} onConfirm={() => act.mutate("release")}>
            <p>
              All that runs in it ends, and what is outside of <code>/mnt/user-data</code> is gone. The files of the thread stay, and the next exec starts a new sandbox.
            </p>
          </Confirm>
        )}
        <Confirm label="Delete thread…" title="Delete the thread?" yes="Delete thread" isDisabled={act.isPending} onConfirm={() => act.mutate("delete")}>
          <p>
            <bdi>{info.thread_id}</bdi> loses its sandbox and {info.workspace.files === 1 ? "its file" : `its ${info.workspace.files} files`}. Nothing brings them back. The audit log keeps what happened.
          </p>
        </Confirm>
      </div>
      {act.isError && <Failure error={act.error} what={doing[last]} />}
    </div>
  );
}
