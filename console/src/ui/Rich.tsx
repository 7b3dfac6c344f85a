import { plain } from "../pages/thread/Output";
import { pretty } from "./exact";
import { Markdown } from "./Markdown";
import { Pixels } from "./Pixels";
import { Shown } from "./Shown";
import "./rich.css";

const images = ["image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp"];
const mostText = 64 << 10; // characters

/** A text that may come in lines, as notebooks have it. */
export function textOf(v: unknown): string | undefined {
  if (typeof v === "string") return v;
  return Array.isArray(v) && v.every((line) => typeof line === "string") ? v.join("") : undefined;
}

export function Text({ text, label }: { text: string; label: string }) {
  return (
    <pre className="output rich" tabIndex={0} role="region" aria-label={label}>
      <Shown>{plain(text.slice(0, mostText))}</Shown>
      {text.length > mostText && <span className="muted"> … cut: {text.length.toLocaleString()} characters</span>}
    </pre>
  );
}

/** What a program displayed, by MIME types: as pixels, as text, or as the types that are not shown. HTML, SVG and scripts are never run. */
export function Rich({ data, label }: { data: Record<string, unknown>; label: string }) {
  const types = Object.keys(data);
  const words = textOf(data["text/plain"]);
  const image = images.find((t) => textOf(data[t]) !== undefined);
  if (image !== undefined) return <Pixels base64={textOf(data[image]) ?? ""} name={words?.slice(0, 200) || label} />;
  const markdown = textOf(data["text/markdown"]);
  const json = types.find((t) => t === "application/json" || (t.endsWith("+json") && typeof data[t] === "object"));
  const others = types.filter((t) => t !== "text/plain" && t !== "text/markdown" && t !== json);
  const text = words ?? textOf(data["text/latex"]);
  return (
    <>
      {markdown !== undefined ? <Markdown text={markdown} label={label} /> : text !== undefined ? <Text text={text} label={label} /> : json !== undefined && <Text text={pretty(data[json])} label={label} />}
      {others.length > 0 && (
        <p className="hint">
          It also has <Shown>{others.join(", ").slice(0, 300)}</Shown>, which {others.length === 1 ? "is" : "are"} not shown.
        </p>
      )}
    </>
  );
}
