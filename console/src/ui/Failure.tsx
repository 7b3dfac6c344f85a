import { ConnectionError, DeadlineError, SkerryError } from "@skerry/client";

/** What a person can do about an error, in the server's own words where it has some. */
export function messageOf(err: unknown): string {
  if (err instanceof SkerryError) return [err.detail, ...err.fields.map((f) => `${f.field}: ${f.detail}`)].join(" ");
  if (err instanceof ConnectionError || err instanceof TypeError) return "No connection to the server. It may have stopped, or the network is away.";
  if (err instanceof DeadlineError) return "The server did not answer in time.";
  return err instanceof Error ? err.message : String(err);
}

export function Failure({ error, what }: { error: unknown; what: string }) {
  const id = error instanceof SkerryError ? error.requestId : undefined;
  return (
    <div className="failure" role="alert">
      <strong>{what}</strong>
      <p>{messageOf(error)}</p>
      {id !== undefined && (
        <p className="hint">
          Request <code>{id}</code>
        </p>
      )}
    </div>
  );
}
