/** A JSON Schema, as it is written in JSON. */
export type JSONSchema = { readonly [keyword: string]: unknown };

/**
 * A schema of a library, such as Zod 4.2 or newer, by its public contract (standardschema.dev): it checks values, and
 * says what it is as a JSON Schema.
 */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => Checked<Output> | Promise<Checked<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

type Checked<Output> = { readonly value: Output; readonly issues?: undefined } | { readonly issues: readonly Issue[] };

interface Issue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

export type Schema = StandardSchema | JSONSchema;

type Types<S> = S extends { readonly "~standard": { readonly types?: infer T } } ? NonNullable<T> : undefined;

/** What a schema makes of a value: what a tool gets as its arguments. */
export type OutputOf<S> = Types<S> extends { readonly output: infer T } ? T : Record<string, unknown>;

/** What a schema takes: what a tool returns. */
export type InputOf<S> = Types<S> extends { readonly input: infer T } ? T : object;

type Side = "input" | "output";

function standard(schema: Schema): StandardSchema["~standard"] | undefined {
  return "~standard" in schema ? (schema as StandardSchema)["~standard"] : undefined;
}

/** Writes a schema as JSON. `side` is what it describes: what it takes, or what it makes of that. */
export function schemaText(schema: Schema, side: Side): string {
  const of = standard(schema) as (StandardSchema["~standard"] & { jsonSchema?: Record<Side, (o: { target: string }) => JSONSchema> }) | undefined;
  if (of === undefined) return JSON.stringify(schema);
  if (of.jsonSchema === undefined) throw new Error(`${of.vendor} does not write its schemas as JSON Schema: use Zod 4.2 or newer, or a JSON Schema`);
  const { $schema: _, ...rest } = of.jsonSchema[side]({ target: "draft-2020-12" }); // the dialect is that of MCP
  return JSON.stringify(rest);
}

/** Checks a value by a schema of a library, and returns what the schema makes of it. A JSON Schema lets all through. */
export async function parse(schema: Schema, value: unknown, otherwise: string): Promise<unknown> {
  const checked = await standard(schema)?.validate(value);
  if (checked === undefined) return value;
  if (checked.issues === undefined) return checked.value;
  throw new Error(`${otherwise}: ${checked.issues.map((i) => place(i) + i.message).join("; ")}`);
}

/** Checks a value by any schema. */
export async function check(schema: Schema, value: unknown, otherwise: string): Promise<void> {
  if (standard(schema) !== undefined) {
    await parse(schema, value, otherwise);
    return;
  }
  const { Validator } = await optional("@cfworker/json-schema", () => import("@cfworker/json-schema"));
  const { valid, errors } = new Validator(schema, "2020-12", false).validate(value);
  if (!valid) throw new Error(`${otherwise}: ${errors.map((e) => `${e.instanceLocation}: ${e.error}`).join("; ")}`);
}

function place(i: Issue): string {
  const keys = (i.path ?? []).map((p) => String(typeof p === "object" ? p.key : p));
  return keys.length === 0 ? "" : `${keys.join(".")}: `;
}

/** Loads a package that is needed for one feature alone. */
export async function optional<T>(name: string, load: () => Promise<T>): Promise<T> {
  try {
    return await load();
  } catch (err) {
    throw new Error(`this needs the package ${name}: install it beside @skerry/client`, { cause: err });
  }
}
