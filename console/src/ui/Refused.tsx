import { SkerryError, type Finding } from "@skerry/client";
import { Button } from "./Button";
import { Failure } from "./Failure";
import { Findings } from "./Findings";

/** The findings of a refusal: the server names file and line, and then rule and message. */
function findingsOf(err: SkerryError): Finding[] {
  return err.fields.map(({ field, detail }) => {
    const place = /^(.*):(\d+)$/.exec(field);
    const parts = /^([a-z0-9-]+): ([\s\S]*)$/.exec(detail);
    return { rule: parts?.[1] ?? "refused", severity: "error", message: parts?.[2] ?? detail, ...(place === null ? { file: field } : { file: place[1] ?? field, line: Number(place[2]) }) };
  });
}

/** Whether the scan refused what was to be installed, and not something else. */
export function scanned(err: unknown): err is SkerryError {
  return err instanceof SkerryError && err.code === "invalid" && /refused by the static scan/.test(err.detail);
}

/** An install that was refused: nothing is there yet. What the scan found can be taken all the same. */
export function Refused({ error, what, busy, onAnyway }: { error: unknown; what: string; busy: boolean; onAnyway?: (() => void) | undefined }) {
  if (!scanned(error)) return <Failure error={error} what={what} />;
  const list = findingsOf(error);
  return (
    <section className="card" role="alert" aria-label="Refused">
      <h3>Nothing was installed: the scan found what may be dangerous</h3>
      <Findings list={list} none={error.detail} />
      {onAnyway !== undefined && (
        <div className="line">
          <Button kind="danger" isDisabled={busy} onPress={onAnyway}>
            {busy ? "Installing…" : "Install it all the same"}
          </Button>
          <span className="hint">You know its author, and have looked at these places. Warnings are shown when it is installed.</span>
        </div>
      )}
    </section>
  );
}
