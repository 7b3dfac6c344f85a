import { useMutation } from "@tanstack/react-query";
import { path } from "@skerry/client";
import { useEffect, useState, type FormEvent } from "react";
import { session } from "../../session/session";
import { Button } from "../../ui/Button";
import { Failure } from "../../ui/Failure";
import { Field } from "../../ui/Field";
import { Shown } from "../../ui/Shown";
import type { Rights, Server } from "./data";
import { useFresh } from "./fresh";
import { handed } from "./handover";

interface Begun {
  url: string;
  redirect_uri: string;
  expires: string;
}

// Where `skerry mcp login` listens. Nothing listens there for this page: a person copies the address.
const elsewhere = "http://localhost:8976/callback";

/** Where the browser is to be sent back to. Authorization servers let programs have loopback addresses alone. */
function redirect(): string {
  const loopback = ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);
  return loopback && location.protocol === "http:" ? `${location.origin}/ui/tools/login` : elsewhere;
}

/** The address of a login, when it is one that a browser may open. */
function opened(url: string): URL | undefined {
  try {
    const u = new URL(url);
    return u.protocol === "https:" || u.protocol === "http:" ? u : undefined;
  } catch {
    return undefined;
  }
}

export function Login({ server, rights }: { server: Server; rights: Rights }) {
  const wants = server.state === "needs_login";
  const may = rights.develops && server.transport !== "stdio" && server.transport !== "pack" && server.state !== "off";
  if (!may) {
    return wants ? (
      <p className="note">This server wants a login. Your role may not log in: ask a developer or an administrator, whose login is their own.</p>
    ) : null;
  }
  if (wants) {
    return (
      <section className="card" aria-label="Login">
        <h3>It wants a login</h3>
        {server.error !== undefined && (
          <p className="hint">
            <Shown>{server.error}</Shown>
          </p>
        )}
        <Steps server={server} />
      </section>
    );
  }
  return (
    <details className="folded">
      <summary>Login</summary>
      <Steps server={server} />
    </details>
  );
}

function Steps({ server }: { server: Server }) {
  const fresh = useFresh();
  const at = path("mcp", "servers", server.name, "login");
  const begin = useMutation({ mutationFn: () => session.client.call<Begun>({ method: "POST", path: at, body: { redirect_uri: redirect() } }) });
  const finish = useMutation({ mutationFn: (redirected: string) => session.client.call({ method: "POST", path: `${at}/finish`, body: { redirected }, kind: "once" }), onSettled: fresh });
  const logout = useMutation({ mutationFn: () => session.client.call({ method: "DELETE", path: at }), onSettled: fresh });
  const url = begin.data === undefined ? undefined : opened(begin.data.url);
  const state = url?.searchParams.get("state") ?? undefined;
  const returns = begin.data?.redirect_uri.startsWith(`${location.origin}/ui/`) === true;
  const { mutate } = finish;
  useEffect(() => (state === undefined ? undefined : handed(state, mutate)), [state, mutate]);
  if (finish.isSuccess) return <p className="note" role="status">You are logged in. The login is yours; that of a shared server is everybody&apos;s.</p>;
  return (
    <>
      <div className="line">
        <Button kind={server.state === "needs_login" ? "primary" : "plain"} isDisabled={begin.isPending} onPress={() => begin.mutate()}>
          {begin.isPending ? "Asking…" : "Begin a login"}
        </Button>
        {server.state !== "needs_login" && (
          <Button isDisabled={logout.isPending} onPress={() => logout.mutate()}>
            {logout.isPending ? "Forgetting…" : "Log out there"}
          </Button>
        )}
      </div>
      {begin.isError && <Failure error={begin.error} what="No login can begin" />}
      {logout.isError && <Failure error={logout.error} what="It could not log out" />}
      {logout.isSuccess && <p className="note" role="status">The login is forgotten.</p>}
      {begin.data !== undefined && url === undefined && <p className="failure">The address of the login is none that a browser should open.</p>}
      {begin.data !== undefined && url !== undefined && (
        <>
          <p>
            1. Log in at <strong className="mono"><Shown>{url.host}</Shown></strong>, in a tab of its own:
          </p>
          <p>
            <a className="button button-primary" href={url.href} target="_blank" rel="noopener noreferrer">
              Open {url.host.slice(0, 80)}
            </a>
          </p>
          <p className="hint">
            <Shown>{url.href}</Shown>
          </p>
          <p>{returns ? "2. You are sent back to a page that says when you may close it. If you are not, copy its address here:" : "2. You are sent to a page that does not load, for nothing listens there. Copy its address here:"}</p>
          <Paste busy={finish.isPending} onPaste={mutate} />
          <p className="hint">
            It has to end before {new Date(begin.data.expires).toLocaleTimeString(undefined, { timeStyle: "short" })}.
          </p>
        </>
      )}
      {finish.isError && <Failure error={finish.error} what="The login did not end well" />}
    </>
  );
}

function Paste({ busy, onPaste }: { busy: boolean; onPaste: (address: string) => void }) {
  const [value, setValue] = useState("");
  const submit = (e: FormEvent) => {
    e.preventDefault();
    if (value.trim() !== "") onPaste(value.trim());
  };
  return (
    <form className="line paste" onSubmit={submit}>
      <Field hideLabel label="The address that you were sent to" placeholder="http://localhost…?code=…" value={value} onChange={setValue} maxLength={16_384} autoComplete="off" />
      <Button type="submit" isDisabled={busy || value.trim() === ""}>
        {busy ? "Finishing…" : "Finish"}
      </Button>
    </form>
  );
}
