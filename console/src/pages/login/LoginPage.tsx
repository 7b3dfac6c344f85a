import { useMutation, useQuery } from "@tanstack/react-query";
import { getRouteApi, useRouter } from "@tanstack/react-router";
import { SkerryError } from "@skerry/client";
import { useState, type FormEvent } from "react";
import { begin, issuers, type Issuer } from "../../session/oidc";
import { session } from "../../session/session";
import { Mark } from "../../shell/Mark";
import { Button } from "../../ui/Button";
import { Failure } from "../../ui/Failure";
import { Checkbox, Field } from "../../ui/Field";
import { useTitle } from "../../ui/title";

const route = getRouteApi("/login");

function why(err: unknown): string {
  if (err instanceof SkerryError && err.status === 401) return "The server does not know this key. Keys begin with sk_; an administrator makes one with skerry keys create.";
  return err instanceof Error ? err.message : String(err);
}

export function LoginPage() {
  useTitle("Log in");
  const { next } = route.useSearch();
  const router = useRouter();
  const [key, setKey] = useState("");
  const [keep, setKeep] = useState(false);
  const login = useMutation({
    mutationFn: () => session.login(key.trim(), keep),
    onSuccess: () => router.history.replace(`/ui${next ?? "/"}`),
  });
  const providers = useQuery({
    queryKey: ["logins"],
    queryFn: ({ signal }) => issuers(signal),
    refetchInterval: ({ state }) => (state.data?.every((i) => i.authorization_endpoint !== undefined) === false ? 10_000 : false),
  });
  const leave = useMutation({ mutationFn: (to: Issuer) => begin(to, next ?? "/", keep) });
  const submit = (e: FormEvent) => {
    e.preventDefault();
    if (key.trim() !== "") login.mutate();
  };
  return (
    <main className="login">
      <form onSubmit={submit} className="login-card" noValidate>
        <h1>
          <Mark /> Skerry
        </h1>
        {session.state.expired !== undefined && (
          <p className="note">{session.state.expired === "jwt" ? "Your login has ended." : "Your key is not valid any more."} Log in again, and you are back where you were.</p>
        )}
        <Field label="API key" type="password" name="key" value={key} onChange={setKey} autoFocus autoComplete="off" error={login.isError ? why(login.error) : undefined} />
        <Checkbox isSelected={keep} onChange={setKeep}>
          Keep for this tab
        </Checkbox>
        <p className="hint">Without it, the login is forgotten when the page is loaded again.</p>
        <Button type="submit" kind="primary" isDisabled={key.trim() === "" || login.isPending}>
          {login.isPending ? "Logging in…" : "Log in"}
        </Button>
        {providers.data?.map((i) => (
          <Button key={i.issuer} onPress={() => leave.mutate(i)} isDisabled={i.authorization_endpoint === undefined || leave.isPending}>
            Log in with {i.name}
          </Button>
        ))}
        {providers.data?.map((i) => i.authorization_endpoint === undefined && <p key={i.issuer} role="status">{i.name} does not answer the server now. This page asks again.</p>)}
        {leave.isError && <Failure error={leave.error} what="The login did not begin" />}
      </form>
    </main>
  );
}
