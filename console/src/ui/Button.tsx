import { Button as AriaButton, type ButtonProps } from "react-aria-components/Button";

/** A button: `primary` for what the page is for, `danger` for what cannot be undone, `quiet` in bars. */
export function Button({ kind = "plain", ...props }: Omit<ButtonProps, "className"> & { kind?: "plain" | "primary" | "danger" | "quiet" }) {
  return <AriaButton {...props} className={`button button-${kind}`} />;
}
