import { pretty } from "../../ui/exact";
import { Shown } from "../../ui/Shown";
import { isObject } from "./data";

const mostDepth = 4;
const mostProperties = 200;
const mostValue = 300; // characters

type Json = Record<string, unknown>;

/** What a $ref within the same schema leads to. */
function resolve(schema: unknown, root: Json): Json {
  let at = isObject(schema) ? schema : {};
  for (let i = 0; i < 8; i++) {
    const ref = at["$ref"];
    if (typeof ref !== "string" || !ref.startsWith("#/")) return at;
    let target: unknown = root;
    for (const part of ref.slice(2).split("/").slice(0, 8)) target = isObject(target) ? target[part.replaceAll("~1", "/").replaceAll("~0", "~")] : undefined;
    if (!isObject(target)) return at;
    at = { ...target, ...Object.fromEntries(Object.entries(at).filter(([k]) => k !== "$ref")) };
  }
  return at;
}

function short(v: unknown): string {
  const text = typeof v === "string" ? JSON.stringify(v) : pretty(v).replace(/\s+/g, " ");
  return text.length > mostValue ? `${text.slice(0, mostValue)}…` : text;
}

/** What a value may be, in words: "string or null", "list of numbers". */
function typeOf(schema: Json, root: Json, depth = 0): string {
  if (depth > 3) return "…";
  if ("const" in schema) return `always ${short(schema["const"])}`;
  const any = schema["anyOf"] ?? schema["oneOf"];
  if (Array.isArray(any)) return [...new Set(any.slice(0, 8).map((s) => typeOf(resolve(s, root), root, depth + 1)))].join(" or ");
  const types = (Array.isArray(schema["type"]) ? schema["type"] : [schema["type"]]).filter((t): t is string => typeof t === "string").slice(0, 8);
  if (types.length === 0) return Array.isArray(schema["enum"]) ? [...new Set(schema["enum"].slice(0, 40).map((v) => (v === null ? "null" : typeof v)))].join(" or ") : isObject(schema["properties"]) ? "object" : "anything";
  return types.map((t) => (t === "array" ? (schema["items"] === undefined ? "list" : `list of ${typeOf(resolve(schema["items"], root), root, depth + 1)}`) : t)).join(" or ");
}

const bounds: [key: string, word: string][] = [
  ["format", "format"],
  ["pattern", "pattern"],
  ["minimum", "at least"],
  ["exclusiveMinimum", "more than"],
  ["maximum", "at most"],
  ["exclusiveMaximum", "less than"],
  ["multipleOf", "multiple of"],
  ["minLength", "characters at least"],
  ["maxLength", "characters at most"],
  ["minItems", "items at least"],
  ["maxItems", "items at most"],
  ["default", "default"],
];

/** The parameters of a tool, or the fields of its result. */
export function Schema({ schema, label, none }: { schema: unknown; label: string; none: string }) {
  const root = isObject(schema) ? schema : {};
  const top = resolve(schema, root);
  const inner = isObject(top["properties"]) ? top : undefined;
  if (inner === undefined || Object.keys(inner["properties"] as Json).length === 0) {
    const type = typeOf(top, root);
    return <p className="hint">{type === "object" || type === "anything" ? none : type}</p>;
  }
  return <Properties of={inner} root={root} depth={0} label={label} />;
}

function Properties({ of, root, depth, label }: { of: Json; root: Json; depth: number; label?: string }) {
  const all = Object.entries(of["properties"] as Json);
  const required = Array.isArray(of["required"]) ? of["required"] : [];
  return (
    <ul className={depth === 0 ? "params" : "params params-inner"} aria-label={label}>
      {all.slice(0, mostProperties).map(([name, raw]) => (
        <Property key={name} name={name} schema={resolve(raw, root)} root={root} required={required.includes(name)} depth={depth} />
      ))}
      {all.length > mostProperties && <li className="hint">… and {all.length - mostProperties} more</li>}
    </ul>
  );
}

function Property({ name, schema, root, required, depth }: { name: string; schema: Json; root: Json; required: boolean; depth: number }) {
  const items = schema["items"] === undefined ? undefined : resolve(schema["items"], root);
  const nested = isObject(schema["properties"]) ? schema : items !== undefined && isObject(items["properties"]) ? items : undefined;
  const values = Array.isArray(schema["enum"]) ? schema["enum"] : items !== undefined && Array.isArray(items["enum"]) ? items["enum"] : undefined;
  const said = bounds.filter(([key]) => key in schema);
  return (
    <li>
      <div className="line param-head">
        <code className="param-name">
          <Shown>{name}</Shown>
        </code>
        <span className="muted">
          <Shown>{typeOf(schema, root)}</Shown>
        </span>
        {required && <span className="tag">required</span>}
      </div>
      {typeof schema["description"] === "string" && (
        <p className="pre">
          <Shown>{schema["description"]}</Shown>
        </p>
      )}
      {values !== undefined && (
        <p className="hint">
          one of{" "}
          {values.slice(0, 40).map((v, i) => (
            <code key={i} className="param-value">
              <Shown>{short(v)}</Shown>
            </code>
          ))}
          {values.length > 40 && ` … of ${values.length}`}
        </p>
      )}
      {said.length > 0 && (
        <p className="hint">
          {said.map(([key, word], i) => (
            <span key={key}>
              {i > 0 && " · "}
              {word}{" "}
              <code>
                <Shown>{short(schema[key])}</Shown>
              </code>
            </span>
          ))}
        </p>
      )}
      {nested !== undefined && (depth + 1 < mostDepth ? <Properties of={nested} root={root} depth={depth + 1} /> : <p className="hint">…</p>)}
    </li>
  );
}

/** An input to begin with: what is required, with defaults where the schema has some. */
export function sample(schema: unknown, root: Json = isObject(schema) ? schema : {}, depth = 0): unknown {
  const at = resolve(schema, root);
  if ("default" in at) return at["default"];
  if ("const" in at) return at["const"];
  const examples = at["examples"];
  if (Array.isArray(examples) && examples.length > 0) return examples[0];
  if (Array.isArray(at["enum"]) && at["enum"].length > 0) return at["enum"][0];
  const any = at["anyOf"] ?? at["oneOf"];
  if (Array.isArray(any) && any.length > 0 && depth < mostDepth) return sample(any[0], root, depth + 1);
  const type = Array.isArray(at["type"]) ? at["type"][0] : at["type"];
  switch (type) {
    case "string":
      return "";
    case "number":
    case "integer":
      return typeof at["minimum"] === "number" ? at["minimum"] : 0;
    case "boolean":
      return false;
    case "array":
      return [];
    case "null":
      return null;
  }
  if (depth >= mostDepth || !isObject(at["properties"])) return {};
  const properties = at["properties"];
  const required = (Array.isArray(at["required"]) ? at["required"] : []).filter((n): n is string => typeof n === "string" && Object.hasOwn(properties, n)).slice(0, mostProperties);
  return Object.fromEntries(required.map((n) => [n, sample(properties[n], root, depth + 1)]));
}
