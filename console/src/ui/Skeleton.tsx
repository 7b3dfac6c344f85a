/** The shape of rows that are still to come. */
export function Skeleton({ rows = 6, label }: { rows?: number; label: string }) {
  return (
    <div className="skeleton" role="status" aria-label={label}>
      {Array.from({ length: rows }, (_, i) => (
        <div key={i} className="skeleton-row">
          <span />
          <span />
          <span />
        </div>
      ))}
    </div>
  );
}
