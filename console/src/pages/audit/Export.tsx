import { useMutation } from "@tanstack/react-query";
import type { Query } from "@skerry/client";
import { session } from "../../session/session";
import { Button } from "../../ui/Button";
import { Failure } from "../../ui/Failure";
import { save } from "../../ui/save";

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
  const exported = useMutation({
    mutationFn: async (format: (typeof formats)[number]) => {
      const until = filter["until"] ?? (newest === undefined ? undefined : new Date(Date.parse(newest) + 1).toISOString());
      const answer = await session.open({ method: "GET", path: "/api/audit/export", query: { ...filter, until, format: format.id } }, new AbortController().signal);
      save(await answer.blob(), format.file);
    },
  });
  return (
    <>
      <div className="line export" role="group" aria-label={total === undefined ? "Export" : `Export of ${total} records`}>
        <span className="hint">{exported.isPending ? "Exporting…" : "Export"}</span>
        {formats.map((f) => (
          <Button key={f.id} kind="quiet" isDisabled={exported.isPending || newest === undefined} onPress={() => exported.mutate(f)}>
            {f.label}
          </Button>
        ))}
      </div>
      {exported.isError && <Failure error={exported.error} what="Not all records could be exported" />}
    </>
  );
}
