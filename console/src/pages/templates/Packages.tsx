import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { path } from "@skerry/client";
import { useMemo } from "react";
import { session } from "../../session/session";
import { Button } from "../../ui/Button";
import { Elapsed } from "../../ui/Elapsed";
import { Failure } from "../../ui/Failure";
import { Field } from "../../ui/Field";
import { Time } from "../../ui/format";
import { Grid, type Columns } from "../../ui/Grid";
import { save } from "../../ui/save";
import { Shown, visible } from "../../ui/Shown";
import { Skeleton } from "../../ui/Skeleton";
import type { TemplatesSearch } from "./route";

const route = getRouteApi("/app/templates");

/** CycloneDX, as far as it is shown. */
interface Bom {
  metadata?: { timestamp?: string };
  components?: { type: string; name: string; version?: string; purl?: string; licenses?: { expression?: string; license?: { id?: string; name?: string } }[] }[];
}

interface Part {
  id: string;
  kind: string;
  name: string;
  version: string;
  licence: string;
}

function partsOf(bom: Bom): Part[] {
  return (bom.components ?? []).flatMap((c, i): Part[] =>
    c.type === "operating-system"
      ? []
      : [
          {
            id: String(i),
            kind: /^pkg:([a-z]+)\//.exec(c.purl ?? "")?.[1] ?? c.type,
            name: c.name,
            version: c.version ?? "",
            licence: (c.licenses ?? []).map((l) => l.expression ?? l.license?.id ?? l.license?.name ?? "").join(", "),
          },
        ],
  );
}

const columns: Columns<Part> = [
  { id: "kind", header: "From", cell: ({ row }) => <span className="muted">{row.original.kind}</span> },
  {
    id: "name",
    header: "Package",
    cell: ({ row }) => (
      <span className="mono" title={visible(row.original.name)}>
        <Shown>{row.original.name}</Shown>
      </span>
    ),
  },
  {
    id: "version",
    header: "Version",
    cell: ({ row }) => (
      <span className="mono" title={visible(row.original.version)}>
        <Shown>{row.original.version}</Shown>
      </span>
    ),
  },
  {
    id: "licence",
    header: "Licence",
    cell: ({ row }) => (
      <span className="muted" title={visible(row.original.licence)}>
        <Shown>{row.original.licence}</Shown>
      </span>
    ),
  },
];

// The server looks into an image for two minutes at most, the start of a sandbox included.
const lookMs = 150_000;

/** What the image is made of, as a sandbox of it says. */
export function Packages({ template }: { template: string }) {
  const { q = "" } = route.useSearch();
  const navigate = route.useNavigate();
  const look = useQuery({
    queryKey: ["templates", "packages", template],
    queryFn: async ({ signal }) => {
      const answer = await session.open({ method: "GET", path: `${path("templates", template)}/sbom` }, AbortSignal.any([signal, AbortSignal.timeout(lookMs)]));
      const text = await answer.text();
      const bom = JSON.parse(text) as Bom;
      return { text, parts: partsOf(bom), at: bom.metadata?.timestamp, system: bom.components?.find((c) => c.type === "operating-system") };
    },
    staleTime: 600_000,
    refetchOnWindowFocus: false,
  });
  const items = useMemo(() => (look.data?.parts ?? []).filter((p) => p.name.toLowerCase().includes(q.toLowerCase())), [look.data, q]);
  if (look.isPending) {
    return (
      <div className="packages">
        <p className="note" role="status">
          A sandbox of the template is asked what it has: <Elapsed />
        </p>
        <Skeleton label="The image is looked at" />
      </div>
    );
  }
  if (look.isError) return <Failure error={look.error} what="It is not known what the image is made of" />;
  const { text, at, system } = look.data;
  return (
    <div className="packages">
      <div className="filters">
        <Field
          hideLabel
          label="Find a package"
          placeholder="Part of a name"
          value={q}
          onChange={(v) => void navigate({ search: ({ q: _, ...s }: TemplatesSearch) => (v === "" ? s : { ...s, q: v }), replace: true })}
          maxLength={128}
          autoComplete="off"
        />
        <Button onPress={() => save(text, `${template}.cdx.json`)}>Save as CycloneDX</Button>
        <span className="count num">
          {items.length} {items.length === 1 ? "package" : "packages"}
        </span>
      </div>
      <p className="hint">
        {system !== undefined && <Shown>{`${system.name} ${system.version ?? ""}`.trim()}</Shown>}
        {at !== undefined && (
          <>
            , looked at <Time at={at} />
          </>
        )}
        . The packages say their versions and licences themselves.
      </p>
      {items.length === 0 ? <p className="hint">No package fits.</p> : <Grid label="Packages" columns={columns} rows={items} rowId={(p) => p.id} shape="grid-packages" rowHeight={32} />}
    </div>
  );
}
