import { useMutation } from "@tanstack/react-query";
import { getRouteApi, useRouter } from "@tanstack/react-router";
import { SkerryError } from "@skerry/client";
import { useState, type FormEvent } from "react";
import { session } from "../../session/session";
import { Mark } from "../../shell/Mark";
import { Button } from "../../ui/Button";
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
        {session.state.expired && <p className="note">Your key is not valid any more. Log in again, and you are back where you were.</p>}
        <Field label="API key" type="password" name="key" value={key} onChange={setKey} autoFocus autoComplete="off" error={login.isError ? why(login.error) : undefined} />
        <Checkbox isSelected={keep} onChange={setKeep}>
          Keep for this tab
        </Checkbox>
        <p className="hint">Without it, the key is forgotten when the page is loaded again.</p>
        <Button type="submit" kind="primary" isDisabled={key.trim() === "" || login.isPending}>
          {login.isPending ? "Logging in…" : "Log in"}
        </Button>
      </form>
    </main>
  );
}
