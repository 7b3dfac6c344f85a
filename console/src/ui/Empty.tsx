import type { ReactNode } from "react";

/** In place of a list that has nothing: it says what to do. */
export function Empty({ title, children, level: Title = "h2" }: { title: string; children?: ReactNode; level?: "h1" | "h2" }) {
  return (
    <section className="empty">
      <Title className="empty-title">{title}</Title>
      {children}
    </section>
  );
}
