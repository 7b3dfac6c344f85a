import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useRef, useState, type FormEvent } from "react";
import { session } from "../../session/session";
import { Button } from "../../ui/Button";
import { Choice } from "../../ui/Choice";
import { Failure } from "../../ui/Failure";
import { Checkbox, Field } from "../../ui/Field";
import { Shown } from "../../ui/Shown";
import { keysKey, type Key } from "./data";
import type { KeysSearch } from "./route";

const roles = [
  { id: "agent", label: "agent: threads, files, tools" },
  { id: "developer", label: "developer: also skills, plugins, approvals" },
  { id: "admin", label: "admin: all of the tenant" },
  { id: "auditor", label: "auditor: reads the audit log" },
  { id: "pack", label: "pack: serves tools" },
] as const;

const day = 86_400_000;
const spans = [
  { id: "0", label: "Never" },
  { id: "1", label: "In a day" },
  { id: "7", label: "In a week" },
  { id: "30", label: "In 30 days" },
  { id: "90", label: "In 90 days" },
  { id: "365", label: "In a year" },
] as const;

const words = (text: string) => text.split(/[\s,]+/).filter((w) => w !== "");

/** Makes a key. Its secret is in this part of the page alone: no cache has it, and it is gone with the part. */
export function NewKey() {
  const known = useQueryClient();
  const [name, setName] = useState("");
  const [user, setUser] = useState("");
  const [role, setRole] = useState<(typeof roles)[number]["id"]>("agent");
  const [actFor, setActFor] = useState(false);
  const [threads, setThreads] = useState("");
  const [capabilities, setCapabilities] = useState("");
  const [expires, setExpires] = useState<(typeof spans)[number]["id"]>("90");
  const [made, setMade] = useState<{ key: Key; secret: string }>();
  const make = useMutation({
    gcTime: 0,
    mutationFn: async () => {
      const only = words(threads);
      const caps = words(capabilities);
      const body = {
        name: name.trim(),
        user: user.trim(),
        role,
        ...(actFor && acts ? { act_for: true } : {}),
        ...(only.length > 0 && limited ? { threads: only } : {}),
        ...(caps.length > 0 ? { capabilities: caps } : {}),
        ...(expires === "0" ? {} : { expires_at: new Date(Date.now() + Number(expires) * day).toISOString() }),
      };
      const { secret, ...key } = await session.client.call<Key & { secret: string }>({ method: "POST", path: "/api/keys", body, kind: "once" });
      setMade({ key, secret });
    },
    onSettled: () => known.invalidateQueries({ queryKey: keysKey }),
  });
  const acts = role !== "auditor" && role !== "pack";
  const limited = role !== "auditor" && role !== "pack";
  const complete = name.trim() !== "" && user.trim() !== "";
  const submit = (e: FormEvent) => {
    e.preventDefault();
    if (complete && !make.isPending) make.mutate();
  };
  if (made !== undefined) return <Made made={made} />;
  return (
    <section className="split-detail" aria-label="Make a key">
      <div className="pane-head">
        <h2>A new key</h2>
        <Link to="/keys" search={({ add: _, ...s }: KeysSearch) => s} activeOptions={{ exact: true, includeSearch: true }} className="button button-quiet">
          Cancel
        </Link>
      </div>
      <form className="scroll key-form" onSubmit={submit} noValidate autoComplete="off">
        <Field label="What it is for" value={name} onChange={setName} maxLength={128} autoComplete="off" />
        <Field label="User" value={user} onChange={setUser} maxLength={128} autoComplete="off" />
        <div className="field">
          <span className="label" aria-hidden="true">
            Role
          </span>
          <Choice label="Role" value={role} options={roles} onChange={setRole} />
        </div>
        {acts && (
          <Checkbox isSelected={actFor} onChange={setActFor}>
            It may act for other users (On-Behalf-Of)
          </Checkbox>
        )}
        {limited && <Field label="Only these threads" placeholder="All; or names, and beginnings such as ci-*" value={threads} onChange={setThreads} maxLength={20_000} autoComplete="off" />}
        <Field label="Capabilities" placeholder="None; or names that tools require" value={capabilities} onChange={setCapabilities} maxLength={20_000} autoComplete="off" />
        <div className="field">
          <span className="label" aria-hidden="true">
            Expires
          </span>
          <Choice label="Expires" value={expires} options={spans} onChange={setExpires} />
        </div>
        {make.isError && <Failure error={make.error} what="No key was made" />}
        <div className="line">
          <Button type="submit" kind="primary" isDisabled={!complete || make.isPending}>
            {make.isPending ? "Making it…" : "Make the key"}
          </Button>
        </div>
      </form>
    </section>
  );
}

function Made({ made }: { made: { key: Key; secret: string } }) {
  const shown = useRef<HTMLInputElement>(null);
  const [copied, setCopied] = useState<"yes" | "no">();
  const copy = () => {
    // Only a page by https, or from loopback, has a clipboard: elsewhere the text is selected for the person to copy.
    const clipboard = navigator.clipboard as Clipboard | undefined;
    if (clipboard === undefined) {
      shown.current?.select();
      setCopied("no");
      return;
    }
    clipboard.writeText(made.secret).then(
      () => setCopied("yes"),
      () => {
        shown.current?.select();
        setCopied("no");
      },
    );
  };
  return (
    <section className="split-detail" aria-label="The new key">
      <div className="card key-secret" role="alert">
        <h2>
          The key <Shown>{made.key.name}</Shown> is made
        </h2>
        <p>It is shown this once. Copy it now: it is gone when you leave this page.</p>
        <input ref={shown} className="input" readOnly value={made.secret} aria-label="The secret of the key" onFocus={(e) => e.target.select()} spellCheck={false} autoComplete="off" />
        <div className="line">
          <Button kind="primary" onPress={copy}>
            Copy
          </Button>
          <Link to="/keys" search={({ add: _, ...s }: KeysSearch) => ({ ...s, key: made.key.id })} className="button">
            I have it
          </Link>
          <span role="status" className="hint">
            {copied === "yes" ? "It is in the clipboard." : copied === "no" ? "The browser copies nothing here: it is selected, copy it yourself." : ""}
          </span>
        </div>
      </div>
    </section>
  );
}
