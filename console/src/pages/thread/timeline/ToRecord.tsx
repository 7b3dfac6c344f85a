import { Link } from "@tanstack/react-router";
import type { CSSProperties, ReactNode } from "react";
import type { Item } from "./model";

interface Props {
  item: Item;
  thread: string;
  children?: ReactNode;
  className?: string;
  style?: CSSProperties;
  /** Of a picture: keys reach the same in the name of the row, and in the list. */
  pointer?: boolean;
  label?: string;
}

/** Leads to what is known of something that happened: the exec with its output, or the record of the audit log. */
export function ToRecord({ item, thread, children, className, style, pointer = false, label }: Props) {
  const common = { className, style, title: label, ...(label === undefined ? {} : { "aria-label": label }), ...(pointer ? { tabIndex: -1 } : {}) };
  if (item.kind === "exec" && item.open && item.exec !== undefined) {
    return (
      <Link to="/threads/$thread" params={{ thread }} search={{ exec: item.exec }} {...common}>
        {children}
      </Link>
    );
  }
  return (
    <Link to="/audit" search={{ thread, last: "all", record: item.record ?? item.id }} {...common}>
      {children}
    </Link>
  );
}
