// The interpreter of a stateful context in TypeScript and JavaScript, on node: it lives on between runs.
// Package process describes the frames on descriptor 3 (Session). Code of the agent shares this process:
// it can break the context, and nothing else.
//
// Each run is the body of an async function. A name that it declares at its top level becomes a global
// with a getter and a setter of that variable, so that the runs after it see it, and change it; a later
// declaration of the same name takes its place.
import fs from "node:fs";
import module from "node:module";
import net from "node:net";
import path from "node:path";
import util from "node:util";
import vm from "node:vm";

const MAX_RESULTS = 64;
const MAX_INLINE = 1 << 20; // bytes of one MIME type; more goes into a file
const MAX_TOTAL = 6 << 20;
const MAX_KEPT = 64 << 20; // bytes of the file with the results beyond MAX_RESULTS
const FILES = "application/vnd.skerry.file+json";
const ENDINGS = {
  "text/plain": "txt", "text/html": "html", "text/markdown": "md", "text/latex": "tex", "image/png": "png",
  "image/jpeg": "jpg", "image/svg+xml": "svg", "application/json": "json", "application/pdf": "pdf",
};
const DISPLAY = Symbol.for("Jupyter.display"); // as Deno's kernel has it
// The agent may put others in their place.
const { env, stderr } = process;
const later = setImmediate;
const require = module.createRequire(import.meta.url);
const sock = new net.Socket({ fd: 3 });
const complain = (text) => stderr.write(text + "\n");

function send(message) {
  const body = Buffer.from(JSON.stringify(message));
  const length = Buffer.alloc(4);
  length.writeUInt32LE(body.length);
  sock.write(Buffer.concat([length, body]));
}

// What one run displays.
class Results {
  items = [];
  total = 0;
  files = 0;
  leftOut = 0;
  kept = 0;
  constructor(dir) {
    this.dir = dir;
  }
  add(bundle) {
    const item = {};
    for (const [mime, data] of Object.entries(bundle)) {
      if (data === undefined || data === null) continue;
      if (data instanceof Uint8Array) item[mime] = Buffer.from(data).toString("base64");
      else if (typeof data === "string" || mime === "application/json" || mime.endsWith("+json")) item[mime] = data;
      else item[mime] = String(data);
    }
    if (Object.keys(item).length === 0) return;
    if (this.items.length < MAX_RESULTS) {
      this.items.push(this.fit(item));
      return;
    }
    this.leftOut++;
    this.keep(item);
  }
  // fit puts data that is too large for the answer into files.
  fit(item) {
    const fitted = {};
    const files = [];
    for (const [mime, data] of Object.entries(item)) {
      const text = JSON.stringify(data);
      if (text === undefined) continue;
      const size = Buffer.byteLength(text);
      if (size <= MAX_INLINE && this.total + size <= MAX_TOTAL) {
        this.total += size;
        fitted[mime] = JSON.parse(text); // as it is now, not as it will be at the end
        continue;
      }
      try {
        files.push(this.write(mime, typeof data === "string" ? data : text));
      } catch (err) {
        complain(`a result of ${size} bytes (${mime}) could not be kept: ${err.message}`);
      }
    }
    if (files.length > 0) fitted[FILES] = files;
    return fitted;
  }
  write(mime, text) {
    const binary = (mime.startsWith("image/") && mime !== "image/svg+xml") || mime === "application/pdf";
    const content = Buffer.from(text, binary ? "base64" : "utf8");
    fs.mkdirSync(this.dir, { recursive: true });
    const file = path.join(this.dir, `result-${++this.files}.${ENDINGS[mime] ?? "bin"}`);
    fs.writeFileSync(file, content, { flag: "wx" });
    return { mime, path: file, bytes: content.length };
  }
  keep(item) {
    const line = JSON.stringify(item) + "\n";
    this.kept += Buffer.byteLength(line);
    if (this.kept > MAX_KEPT) return;
    const file = path.join(this.dir, "results.jsonl");
    try {
      fs.mkdirSync(this.dir, { recursive: true });
      fs.appendFileSync(file, line);
    } catch (err) {
      complain(`results could not be kept: ${err.message}`);
      return;
    }
    if (this.leftOut === 1) complain(`only ${MAX_RESULTS} results are in the answer; the others are in ${file}`);
  }
}

function bundleOf(value) {
  if (typeof value?.[DISPLAY] === "function") return value[DISPLAY]();
  const bundle = { "text/plain": util.inspect(value, { depth: 4, maxArrayLength: 100, maxStringLength: 10000, breakLength: 100 }) };
  const kind = value !== null && typeof value === "object" ? Object.getPrototypeOf(value) : undefined;
  if (kind === Object.prototype || kind === Array.prototype || kind === null) {
    try {
      const text = JSON.stringify(value);
      if (text.length <= MAX_INLINE) bundle["application/json"] = JSON.parse(text);
    } catch {
      // not JSON: a cycle, or a bigint
    }
  }
  return bundle;
}

// names of a pattern: a, {a, b: [c]}, ...d
function namesOf(node, found = []) {
  switch (node?.type) {
    case "Identifier": found.push(node.name); break;
    case "ObjectPattern": node.properties.forEach((p) => namesOf(p.value ?? p.argument, found)); break;
    case "ArrayPattern": node.elements.forEach((e) => namesOf(e, found)); break;
    case "AssignmentPattern": namesOf(node.left, found); break;
    case "RestElement": namesOf(node.argument, found); break;
  }
  return found;
}

// Turns a text into that of an async function, with every line where it was.
function transform(acorn, text) {
  const tree = acorn.parse(text, { ecmaVersion: "latest", sourceType: "module", allowAwaitOutsideFunction: true });
  const edits = []; // [start, end, text], in order
  const bound = []; // source of [name, getter, setter?]
  const loads = [];
  const bind = (name, writable) => bound.push(`[${JSON.stringify(name)},()=>${name}${writable ? `,($skerry)=>{${name}=$skerry}` : ""}]`);
  const blank = (from, to) => edits.push([from, to, text.slice(from, to).replace(/[^\n]/g, " ")]);
  const declare = (d) => {
    if (d.type === "VariableDeclaration") d.declarations.flatMap((x) => namesOf(x.id)).forEach((n) => bind(n, d.kind !== "const"));
    else if (d.id) bind(d.id.name, true);
  };
  const last = tree.body.at(-1);
  for (const node of tree.body) {
    switch (node.type) {
      case "ImportDeclaration": {
        const from = `$skerry_module${loads.length}`;
        loads.push(`const ${from}=await import(${JSON.stringify(node.source.value)});`);
        for (const s of node.specifiers) {
          const what = s.type === "ImportNamespaceSpecifier" ? "" : `[${JSON.stringify(s.type === "ImportDefaultSpecifier" ? "default" : s.imported.name ?? s.imported.value)}]`;
          bound.push(`[${JSON.stringify(s.local.name)},()=>${from}${what}]`);
        }
        blank(node.start, node.end);
        break;
      }
      case "ExportNamedDeclaration":
        if (node.declaration) {
          blank(node.start, node.declaration.start);
          declare(node.declaration);
        } else blank(node.start, node.end);
        break;
      case "ExpressionStatement":
        if (node === last) {
          edits.push([node.start, node.expression.start, `return [${text.slice(node.start, node.expression.start)}`]);
          edits.push([node.expression.end, node.end, `${text.slice(node.expression.end, node.end).replace(/;$/, "")}\n]`]);
        }
        break;
      case "VariableDeclaration": case "FunctionDeclaration": case "ClassDeclaration":
        declare(node);
    }
  }
  let body = "";
  let at = 0;
  for (const [from, to, by] of edits) {
    body += text.slice(at, from) + by;
    at = to;
  }
  const head = `(async($skerry_bind)=>{"use strict";${loads.join("")}$skerry_bind([${bound.join(",")}]);`;
  return { source: `${head}${body}${text.slice(at)}\n})`, offset: head.length };
}

// Makes globals of what a run declares. The function that it gives takes back those that never came to be.
function binder() {
  const done = [];
  const bind = (list) => {
    for (const [name, get, set] of list) {
      const before = Object.getOwnPropertyDescriptor(globalThis, name);
      try {
        Object.defineProperty(globalThis, name, { get, set, configurable: true, enumerable: true });
        done.push([name, get, before]);
      } catch {
        // a name that nothing may replace, such as undefined: it is the run's own
      }
    }
  };
  const settle = () => {
    for (const [name, get, before] of done) {
      try {
        get();
      } catch {
        delete globalThis[name];
        if (before) Object.defineProperty(globalThis, name, before);
      }
    }
  };
  return { bind, settle };
}

class Exit extends Error {
  constructor(code) {
    super(`exit ${code}`);
    this.code = code;
  }
}

let current = null; // the run of now: {fail, results}
let count = 0;

function report(err) {
  if (err instanceof Exit) return err.code;
  const text = err instanceof Error && typeof err.stack === "string" ? util.inspect(err) : `Uncaught ${util.inspect(err)}`;
  complain(text.split("\n").filter((line) => !/^\s+at .*(kernel\.mjs|node:)/.test(line)).join("\n"));
  return 1;
}

class Interrupted extends Error {}

async function evaluate(acorn, job, typed) {
  const name = `cell-${++count}.${typed ? "ts" : "js"}`;
  const { bind, settle } = binder();
  let stop;
  const stopped = new Promise((_, reject) => {
    stop = reject;
  });
  stopped.catch(() => {});
  current.fail = stop;
  try {
    const { source, offset } = transform(acorn, typed ? strip(job.code) : job.code);
    const script = new vm.Script(source, { filename: name, columnOffset: -offset, importModuleDynamically: (s) => import(s) });
    const run = script.runInThisContext();
    // The part before the first await is run here: an endless loop in it can be interrupted.
    globalThis.$skerry_run = () => run(bind);
    let ended;
    try {
      ended = vm.runInThisContext("$skerry_run()", { breakOnSigint: true, filename: "kernel.mjs" });
    } finally {
      delete globalThis.$skerry_run;
    }
    const value = await Promise.race([ended, stopped]);
    if (value && value[0] !== undefined) current.results.add(await Promise.race([bundleOf(value[0]), stopped]));
    return 0;
  } catch (err) {
    if (err instanceof Interrupted || err?.code === "ERR_SCRIPT_EXECUTION_INTERRUPTED") {
      complain("interrupted");
      return 130;
    }
    return report(err);
  } finally {
    settle();
  }
}

function strip(text) {
  try {
    return module.stripTypeScriptTypes(text, { mode: "strip" });
  } catch (err) {
    if (err?.code !== "ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX") throw err;
    return module.stripTypeScriptTypes(text, { mode: "transform" }); // an enum, say
  }
}

const turn = () => new Promise((done) => later(done));

async function serve(acorn, job, typed) {
  // A SIGINT for the run before was sent before this job was. The loop looks for signals last, so two turns end with it taken.
  await turn();
  await turn();
  const before = {};
  for (const [name, value] of Object.entries(job.env ?? {})) {
    before[name] = env[name];
    env[name] = value;
  }
  const results = new Results(job.dir);
  current = { results, fail: () => {} };
  let code = await evaluate(acorn, job, typed);
  current = null;
  for (const [name, value] of Object.entries(job.env ?? {})) {
    if (env[name] !== value) continue; // the run has set it
    if (before[name] === undefined) delete env[name];
    else env[name] = before[name];
  }
  send({ run: job.run, code, results: results.items, left_out: results.leftOut });
}

function listen(acorn, typed) {
  let held = Buffer.alloc(0);
  let busy = Promise.resolve();
  sock.on("data", (part) => {
    held = held.length ? Buffer.concat([held, part]) : part;
    while (held.length >= 4 && held.length >= 4 + held.readUInt32LE(0)) {
      const end = 4 + held.readUInt32LE(0);
      const job = JSON.parse(held.subarray(4, end).toString());
      held = held.subarray(end);
      busy = busy.then(() => serve(acorn, job, typed));
    }
  });
  for (const event of ["end", "error", "close"]) sock.on(event, () => process.reallyExit(0)); // sandboxd is gone
  process.on("SIGINT", () => current?.fail(new Interrupted()));
  const failed = (err) => {
    if (err instanceof Exit && !current) return;
    if (current) current.fail(err);
    else report(err);
  };
  process.on("uncaughtException", failed);
  process.on("unhandledRejection", failed);
  process.exit = (code = process.exitCode ?? 0) => {
    const exit = new Exit(Number(code) & 0xff);
    current?.fail(exit);
    throw exit;
  };
  globalThis.display = async (value, options) => {
    const to = current?.results;
    to?.add(options?.raw ? value : await bundleOf(value));
  };
  globalThis.require = require;
}

let acorn;
try {
  acorn = require("internal/deps/acorn/acorn/dist/acorn"); // node's own, for its REPL
} catch {
  // an older or a newer one
}
if (!acorn || !module.stripTypeScriptTypes) {
  send({ refused: `TypeScript and JavaScript contexts need node 22.13 or newer in the image; it has ${process.version}` });
  sock.end();
} else {
  listen(acorn, process.argv[2] === "typescript");
  send({ ready: true });
}
