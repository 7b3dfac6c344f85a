import { useMutation } from "@tanstack/react-query";
import type { Query } from "@skerry/client";
import { session } from "../../session/session";
import { Button } from "../../ui/Button";
import { Failure } from "../../ui/Failure";

const formats = [
  { id: "csv", label: "CSV", file: "audit.csv" },
  { id: "jsonl", label: "JSON lines", file: "audit.jsonl" },
  { id: "ocsf", label: "OCSF", file: "audit.ocsf.jsonl" },
] as const;

interface Props {
  filter: Query;
  newest: string | undefined;
  total: number | undefined;
}

/** Saves all records of the filter, up to the newest one that is shown. */
export function Export({ filter, newest, total }: Props) {
  const save = useMutation({
    mutationFn: async (format: (typeof formats)[number]) => {
      const until = filter["until"] ?? (newest === undefined ? undefined : new Date(Date.parse(newest) + 1).toISOString());
      const answer = await session.open({ method: "GET", path: "/api/audit/export", query: { ...filter, until, format: format.id } }, new AbortController().signal);
      const url = URL.createObjectURL(new Blob([await answer.blob()], { type: "application/octet-stream" }));
      const a = document.createElement("a");
      a.href = url;
      a.download = format.file;
      a.click();
      setTimeout(() => URL.revokeObjectURL(url), 60_000);
    },
  });
  return (
    <>
      <div className="line export" role="group" aria-label={total === undefined ? "Export" : `Export of ${total} records`}>
        <span className="hint">{save.isPending ? "Exporting…" : "Export"}</span>
        {formats.map((f) => (
          <Button key={f.id} kind="quiet" isDisabled={save.isPending || newest === undefined} onPress={() => save.mutate(f)}>
            {f.label}
          </Button>
        ))}
      </div>
      {save.isError && <Failure error={save.error} what="Not all records could be exported" />}
    </>
  );
}
