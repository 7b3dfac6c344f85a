import { Fragment, useEffect, useState, type ReactNode } from "react";
import { Shown } from "./Shown";
import { Skeleton } from "./Skeleton";
import { ask } from "./worker";
import "./markdown.css";

/** What is used of a node of the tree (mdast). */
interface Node {
  type: string;
  value?: string;
  url?: string;
  alt?: string | null;
  title?: string | null;
  depth?: number;
  ordered?: boolean | null;
  start?: number | null;
  lang?: string | null;
  identifier?: string;
  label?: string | null;
  children?: Node[];
}

const mostText = 256 << 10; // characters
const mostNodes = 20_000;
const mostDepth = 24;
const patienceMs = 2_000;

type Parsed = { tree: Node; lines: null } | { tree: null; lines: string };

/**
 * A text of a stranger in Markdown. HTML in it is text, an image is its description and its address, and a link is its text
 * and its address: the page follows none. Headings begin below that of what it is part of.
 */
export function Markdown({ text, label }: { text: string; label: string }) {
  const [parsed, set] = useState<Parsed>();
  useEffect(() => {
    set(undefined);
    if (text.length > mostText) {
      set({ tree: null, lines: text });
      return undefined;
    }
    const worker = new Worker(new URL("./markdown.worker.ts", import.meta.url), { type: "module" });
    return ask<Node>(worker, text, patienceMs, (tree) => set(tree === undefined ? { tree: null, lines: text } : { tree, lines: null }));
  }, [text]);
  if (parsed === undefined) return <Skeleton rows={8} label="The text is loading" />;
  if (parsed.tree === null) {
    return (
      <>
        <p className="note">This text is too long, or too tangled, to be shown as Markdown.</p>
        <pre className="output" tabIndex={0} role="region" aria-label={label}>
          <Shown>{parsed.lines.slice(0, 4 * mostText)}</Shown>
        </pre>
      </>
    );
  }
  return (
    <article className="markdown" tabIndex={0} role="region" aria-label={label}>
      <Tree root={parsed.tree} />
    </article>
  );
}

interface Context {
  /** Addresses of [text][name], by name. */
  places: ReadonlyMap<string, string>;
  left: number;
}

function Tree({ root }: { root: Node }) {
  const places = new Map<string, string>();
  for (const n of root.children ?? []) if (n.type === "definition" && n.identifier !== undefined && n.url !== undefined && !places.has(n.identifier)) places.set(n.identifier, n.url);
  const context: Context = { places, left: mostNodes };
  const nodes = children(root, context, 0);
  return (
    <>
      {nodes}
      {context.left <= 0 && <p className="note">The rest is left out: it is too much.</p>}
    </>
  );
}

function children(n: Node, c: Context, depth: number): ReactNode[] {
  return (n.children ?? []).map((child, i) => (c.left <= 0 ? null : <Fragment key={i}>{render(child, c, depth + 1)}</Fragment>));
}

/** All text of a node, for what is nested too deep. */
function flat(n: Node, depth = 0): string {
  return n.value ?? (depth > 200 ? "" : (n.children ?? []).map((child) => flat(child, depth + 1)).join(" "));
}

function render(n: Node, c: Context, depth: number): ReactNode {
  c.left--;
  if (depth > mostDepth) return <Shown>{flat(n)}</Shown>;
  const inner = () => children(n, c, depth);
  switch (n.type) {
    case "text":
      return <Shown>{n.value ?? ""}</Shown>;
    case "paragraph":
      return <p>{inner()}</p>;
    case "heading": {
      const Title = n.depth === 1 ? "h3" : n.depth === 2 ? "h4" : "h5";
      return <Title>{inner()}</Title>;
    }
    case "emphasis":
      return <em>{inner()}</em>;
    case "strong":
      return <strong>{inner()}</strong>;
    case "inlineCode":
      return (
        <code>
          <Shown>{n.value ?? ""}</Shown>
        </code>
      );
    case "code":
      return (
        <pre>
          <Shown>{n.value ?? ""}</Shown>
        </pre>
      );
    case "blockquote":
      return <blockquote>{inner()}</blockquote>;
    case "list":
      return n.ordered === true ? <ol start={n.start ?? 1}>{inner()}</ol> : <ul>{inner()}</ul>;
    case "listItem":
      return <li>{inner()}</li>;
    case "thematicBreak":
      return <hr />;
    case "break":
      return <br />;
    case "table":
      return table(n, c, depth);
    case "link":
      return place(inner(), n.url ?? "", flat(n));
    case "linkReference":
      return place(inner(), c.places.get(n.identifier ?? "") ?? "", flat(n));
    case "image":
      return picture(n.alt, n.url ?? "");
    case "imageReference":
      return picture(n.alt, c.places.get(n.identifier ?? "") ?? "");
    case "definition":
      return null;
    default: // HTML, and what is not known: as it was written
      return (
        <code className="markdown-raw">
          <Shown>{flat(n)}</Shown>
        </code>
      );
  }
}

/** A link: its text, and where it leads as text behind it. */
function place(inner: ReactNode, url: string, text: string): ReactNode {
  return (
    <>
      <span className="markdown-link">{inner}</span>
      {url !== "" && url !== text && (
        <span className="markdown-place">
          {" "}
          <Shown>{url}</Shown>
        </span>
      )}
    </>
  );
}

function picture(alt: string | null | undefined, url: string): ReactNode {
  return (
    <span className="markdown-image">
      Image{alt !== null && alt !== undefined && alt !== "" ? <>: <Shown>{alt}</Shown></> : null}{" "}
      <span className="markdown-place">
        <Shown>{url}</Shown>
      </span>
    </span>
  );
}

function table(n: Node, c: Context, depth: number): ReactNode {
  const [head, ...rows] = n.children ?? [];
  const cells = (row: Node | undefined, Cell: "th" | "td") => (row?.children ?? []).map((cell, i) => <Cell key={i}>{children(cell, c, depth + 2)}</Cell>);
  return (
    <div className="markdown-table">
      <table>
        <thead>
          <tr>{cells(head, "th")}</tr>
        </thead>
        <tbody>
          {rows.map((row, i) => (
            <tr key={i}>{cells(row, "td")}</tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The text of a SKILL.md, and what is above it between two lines of ---. */
export function parts(text: string): { head: string; body: string } {
  const m = /^\uFEFF?---[ \t]*\r?\n([\s\S]*?)(?:\r?\n)?---[ \t]*(?:\r?\n|$)/.exec(text);
  return m === null ? { head: "", body: text } : { head: m[1] ?? "", body: text.slice(m[0].length) };
}
