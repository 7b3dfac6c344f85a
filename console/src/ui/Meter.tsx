import type { ReactNode } from "react";

/** How much of a bound is taken: as a bar, and in words. */
export function Meter({ name, children, value, most, text }: { name: string; children?: ReactNode; value: number; most: number; text: string }) {
  return (
    <div className="meter">
      <span className="meter-name">{children ?? name}</span>
      <span className="num">{text}</span>
      <meter aria-label={`${name}: ${text}`} min={0} max={1} high={0.9} value={most > 0 ? Math.min(1, value / most) : 0} />
    </div>
  );
}
