import { bytes, duration } from "./format";
import { Meter } from "./Meter";
import { Shown } from "./Shown";

/** A limit of GET /api/usage. */
export interface Limit {
  limit: string;
  scope: string;
  who?: string;
  max: number;
  /** Absent for a rate. */
  used?: number;
}

const number = new Intl.NumberFormat();

const names: Record<string, { label: string; format?: (n: number) => string }> = {
  requests_per_minute: { label: "Requests a minute" },
  execs: { label: "Execs at once" },
  sandboxes: { label: "Sandboxes" },
  cpu_seconds_per_day: { label: "CPU time a day", format: (n) => duration(n * 1000) },
  disk_mib: { label: "Disk", format: (n) => bytes(n * (1 << 20)) },
  tool_calls_per_day: { label: "Tool calls a day" },
  tool_calls_per_minute: { label: "Tool calls a minute" },
};

const amount = (l: Limit, n: number) => (names[l.limit]?.format ?? number.format)(n);

/** How near a limit is; what is not known of a rate counts as nothing. */
export function share(l: Limit): number {
  return l.used === undefined || l.max <= 0 ? 0 : l.used / l.max;
}

/** Limits with what is taken of them, and rates as they are. */
export function Limits({ list }: { list: readonly Limit[] }) {
  return (
    <div className="meters">
      {list.map((l) => {
        const label = names[l.limit]?.label ?? l.limit;
        const key = `${l.limit} ${l.scope} ${l.who ?? ""}`;
        const name = (
          <>
            {label}, of the {l.scope} <Shown>{l.who ?? ""}</Shown>
          </>
        );
        return l.used === undefined ? (
          <div className="meter" key={key}>
            <span className="meter-name">{name}</span>
            <span className="num">at most {amount(l, l.max)}</span>
          </div>
        ) : (
          <Meter key={key} name={`${label}, of the ${l.scope}`} value={l.used} most={l.max} text={`${amount(l, l.used)} of ${amount(l, l.max)}`}>
            {name}
          </Meter>
        );
      })}
    </div>
  );
}
