import { useMutation, useQueryClient } from "@tanstack/react-query";
import { path } from "@skerry/client";
import { useState, type FormEvent } from "react";
import { session } from "../../session/session";
import { Button } from "../../ui/Button";
import { Choice } from "../../ui/Choice";
import { Failure } from "../../ui/Failure";
import { Field } from "../../ui/Field";
import { Shown } from "../../ui/Shown";
import { State } from "../../ui/State";
import type { Option, Plugin } from "./data";

/** What was typed for an option: undefined where nothing was. */
function valueOf(o: Option, text: string | undefined): unknown {
  if (text === undefined || text === "") return undefined;
  if (o.type === "boolean") return text === "yes";
  if (o.type === "number" && /^-?[0-9.]+$/.test(text.trim())) return Number(text);
  return text;
}

function shownValue(o: Option): string {
  if (!o.set || o.sensitive === true) return "";
  return o.type === "boolean" ? (o.value === true ? "yes" : "no") : typeof o.value === "string" ? o.value : o.value === undefined ? "" : JSON.stringify(o.value);
}

/** The values that a plugin asks its user for. A secret goes to the server, and never comes back. */
export function Values({ p, changes }: { p: Plugin; changes: boolean }) {
  const known = useQueryClient();
  const [typed, setTyped] = useState<ReadonlyMap<string, string>>(new Map());
  const save = useMutation({
    mutationFn: (values: Record<string, unknown>) => session.client.call<Plugin>({ method: "PUT", path: `${path("plugins", p.name)}/values`, body: { values } }),
    onSuccess: () => setTyped(new Map()),
    onSettled: () => known.invalidateQueries({ predicate: (q) => ["plugins", "tools"].includes(String(q.queryKey[0])) }),
  });
  const options = p.options ?? [];
  const type = (key: string, text: string) => setTyped((t) => new Map(t).set(key, text));
  const changed = Object.fromEntries(
    options.flatMap((o): [string, unknown][] => {
      const text = typed.get(o.key);
      const value = valueOf(o, text);
      return value === undefined || text === shownValue(o) ? [] : [[o.key, value]];
    }),
  );
  const submit = (e: FormEvent) => {
    e.preventDefault();
    if (Object.keys(changed).length > 0) save.mutate(changed);
  };
  if (options.length === 0) return <p className="hint">It asks for nothing.</p>;
  return (
    <form onSubmit={submit} className="values" noValidate autoComplete="off">
      <p className="hint">They are yours alone. Those of its servers, and those that it calls sensitive, are stored encrypted and are not shown again. {"${secret:NAME}"} lends a secret of yours.</p>
      {options.slice(0, 200).map((o) => (
        <div key={o.key} className="card value" role="group" aria-label={o.title ?? o.key}>
          <div className="line">
            <strong>
              <Shown>{o.title ?? o.key}</Shown>
            </strong>
            {o.title !== undefined && (
              <code>
                <Shown>{o.key}</Shown>
              </code>
            )}
            {o.required === true && <span className="tag">required</span>}
            {o.sensitive === true && <span className="tag">secret</span>}
            <State name={o.set ? "set" : "not set"} tone={o.set ? "good" : o.required === true ? "bad" : "none"} />
          </div>
          {o.description !== undefined && (
            <p className="hint">
              <Shown>{o.description}</Shown>
            </p>
          )}
          {changes && (
            <div className="line value-input">
              {o.type === "boolean" ? (
                <Choice
                  label={`Value of ${o.title ?? o.key}`}
                  value={(typed.get(o.key) ?? shownValue(o)) as "" | "yes" | "no"}
                  options={[
                    { id: "", label: "not said" },
                    { id: "yes", label: "yes" },
                    { id: "no", label: "no" },
                  ]}
                  onChange={(v) => type(o.key, v)}
                />
              ) : (
                <Field
                  hideLabel
                  label={`Value of ${o.title ?? o.key}`}
                  type={o.sensitive === true ? "password" : "text"}
                  placeholder={o.sensitive === true && o.set ? "set; type another one to replace it" : o.default === undefined ? "" : `without: ${String(o.default).slice(0, 100)}`}
                  value={typed.get(o.key) ?? shownValue(o)}
                  onChange={(v) => type(o.key, v)}
                  maxLength={65_536}
                  autoComplete="off"
                />
              )}
              {o.set && (
                <Button isDisabled={save.isPending} onPress={() => save.mutate({ [o.key]: null })} aria-label={`Forget ${o.title ?? o.key}`}>
                  Forget
                </Button>
              )}
            </div>
          )}
          {!changes && o.set && <p className="mono">{o.sensitive === true ? "***" : <Shown>{shownValue(o)}</Shown>}</p>}
        </div>
      ))}
      {save.isError && <Failure error={save.error} what="The values were not set" />}
      {save.isSuccess && Object.keys(changed).length === 0 && <p className="note" role="status">It is done.</p>}
      {changes && (
        <div className="line">
          <Button type="submit" kind="primary" isDisabled={Object.keys(changed).length === 0 || save.isPending}>
            {save.isPending ? "Saving…" : "Save"}
          </Button>
        </div>
      )}
    </form>
  );
}

