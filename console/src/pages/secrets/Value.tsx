import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";
import { Area } from "../../ui/Area";
import { Button } from "../../ui/Button";
import { Failure } from "../../ui/Failure";
import { Checkbox } from "../../ui/Field";
import { secretsKey, store, type Secret } from "./data";

const least = 8;
const most = 16_384;

/** A value that is typed once and sent. It is cleared as soon as it is sent, whatever becomes of it. */
export function Value({ name, scope, exec: was, label, action, onStored }: { name: string; scope: string; exec: boolean; label: string; action: string; onStored?: (s: Secret) => void }) {
  const known = useQueryClient();
  const [value, setValue] = useState("");
  const [seen, setSeen] = useState(false);
  const [exec, setExec] = useState(was);
  const save = useMutation({
    gcTime: 0,
    mutationFn: () => {
      const sent = store(name, scope, value, exec);
      setValue("");
      return sent;
    },
    onSuccess: async (s) => {
      await known.invalidateQueries({ queryKey: secretsKey });
      onStored?.(s);
    },
  });
  const bytes = new TextEncoder().encode(value).length;
  const wrong = value === "" ? undefined : bytes < least ? `A value has ${least} bytes at least: a shorter one cannot be kept out of outputs.` : bytes > most + 2 ? `A value has ${most} bytes at most.` : undefined;
  const skill = scope.startsWith("skill/");
  const submit = (e: FormEvent) => {
    e.preventDefault();
    if (value !== "" && wrong === undefined && name !== "" && !save.isPending) save.mutate();
  };
  return (
    <form className="secret-form" onSubmit={submit} noValidate autoComplete="off">
      <Area label={label} value={value} onChange={setValue} rows={3} covered={!seen} error={wrong} hint="It is never shown again. A line break at its end is not part of it." maxLength={most + 2} />
      <div className="line">
        <Checkbox isSelected={seen} onChange={setSeen}>
          Show it while I type
        </Checkbox>
        {!skill && (
          <Checkbox isSelected={exec} onChange={setExec}>
            Execs may have it in their environment
          </Checkbox>
        )}
      </div>
      {save.isError && <Failure error={save.error} what="Nothing was stored. Type the value again" />}
      {save.isSuccess && value === "" && (
        <p className="note" role="status">
          It is stored.
        </p>
      )}
      <div className="line">
        <Button type="submit" kind="primary" isDisabled={value === "" || wrong !== undefined || name === "" || save.isPending}>
          {save.isPending ? "Storing…" : action}
        </Button>
      </div>
    </form>
  );
}
