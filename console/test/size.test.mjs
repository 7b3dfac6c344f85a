// What a browser loads before it shows the first page is small, and the heavy parts come when they are needed.
import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { test } from "node:test";
import { gzipSync } from "node:zlib";

const dist = new URL("../../internal/api/console/dist/", import.meta.url);
const most = 250 * 1024;
const manifest = JSON.parse(await readFile(new URL(".manifest.json", dist), "utf8"));

/** The files of a chunk and of all that it imports at once. */
function filesOf(name, seen = new Set()) {
  const chunk = manifest[name];
  if (seen.has(name)) return [];
  seen.add(name);
  return [chunk.file, ...(chunk.css ?? []), ...(chunk.imports ?? []).flatMap((i) => filesOf(i, seen))];
}

const packed = async (file) => gzipSync(await readFile(new URL(file, dist)), { level: 9 }).length;
const sum = async (files) => (await Promise.all([...new Set(files)].map(packed))).reduce((a, b) => a + b, 0);

test("the first load with the list of threads has at most 250 KiB, packed", async () => {
  const files = ["index.html", ...filesOf("index.html"), ...filesOf("src/pages/threads/ThreadsPage.tsx")];
  const size = await sum(files);
  console.log(`first load: ${(size / 1024).toFixed(1)} KiB of at most ${most / 1024} KiB in ${new Set(files).size} files`);
  assert.ok(size > 50 * 1024, "nothing was counted");
  assert.ok(size <= most, `${size} bytes`);
});

test("the terminal and the files are chunks of their own", async () => {
  const first = new Set([...filesOf("index.html"), ...filesOf("src/pages/threads/ThreadsPage.tsx"), ...filesOf("src/pages/thread/ThreadPage.tsx")]);
  for (const part of ["src/pages/thread/Screen.tsx", "src/pages/thread/files/Files.tsx"]) {
    assert.ok(manifest[part].isDynamicEntry, part);
    assert.ok(!first.has(manifest[part].file), part);
  }
  for (const file of first) {
    if (file.endsWith(".js")) assert.doesNotMatch(await readFile(new URL(file, dist), "utf8"), /xterm-screen|xterm-helper/, file);
  }
});

test("the parts of one thread are chunks of their own, and the libraries of previews and of the editor come when they are needed", async () => {
  const first = new Set([...filesOf("index.html"), ...filesOf("src/pages/threads/ThreadsPage.tsx"), ...filesOf("src/pages/thread/ThreadPage.tsx"), ...filesOf("src/pages/thread/files/Files.tsx")]);
  const parts = ["timeline/Timeline", "contexts/Contexts", "files/Editor", "files/Sheet", "files/Notebook", "files/Pdf", "files/Page"].map((p) => `src/pages/thread/${p}.tsx`);
  for (const part of parts) {
    assert.ok(manifest[part].isDynamicEntry, part);
    assert.ok(!first.has(manifest[part].file), part);
  }
  const text = (file) => readFile(new URL(file, dist), "utf8");
  const marks = { "src/pages/thread/files/Editor.tsx": /cm-content/, "src/pages/thread/files/Pdf.tsx": /RenderingCancelledException/ };
  for (const file of first) {
    if (!file.endsWith(".js")) continue;
    for (const mark of Object.values(marks)) assert.doesNotMatch(await text(file), mark, file);
  }
  for (const [part, mark] of Object.entries(marks)) {
    const own = (await Promise.all(filesOf(part).filter((f) => f.endsWith(".js")).map(text))).join("");
    assert.match(own, mark, `the mark of the library is not in ${part}`);
  }
  const workers = (await readdir(new URL("assets/", dist))).filter((f) => /^(sheet|pdf)\.worker.*\.js$/.test(f));
  assert.equal(workers.length, 2, workers.join());
});

test("the pages of audit and approvals, and the library of plots, are chunks of their own", async () => {
  const first = new Set([...filesOf("index.html"), ...filesOf("src/pages/threads/ThreadsPage.tsx")]);
  for (const part of ["src/pages/audit/AuditPage.tsx", "src/pages/approvals/ApprovalsPage.tsx", "src/ui/PlotCanvas.tsx"]) {
    assert.ok(manifest[part].isDynamicEntry, part);
    assert.ok(!first.has(manifest[part].file), part);
  }
  for (const file of first) {
    if (file.endsWith(".js")) assert.doesNotMatch(await readFile(new URL(file, dist), "utf8"), /u-over|diffLines/, file);
  }
  const plot = manifest["src/ui/PlotCanvas.tsx"];
  assert.match(await readFile(new URL(plot.file, dist), "utf8"), /u-over/, "the mark of the library is not in its chunk");
  assert.ok(!filesOf("src/pages/audit/AuditPage.tsx").includes(plot.file));
});

test("the pages of tools, skills and plugins are chunks of their own, and Markdown is parsed in a worker", async () => {
  const first = new Set([...filesOf("index.html"), ...filesOf("src/pages/threads/ThreadsPage.tsx")]);
  for (const part of ["src/pages/tools/ToolsPage.tsx", "src/pages/skills/SkillsPage.tsx", "src/pages/plugins/PluginsPage.tsx", "src/pages/tools/LoggedIn.tsx", ...["secrets/Secrets", "keys/Keys", "usage/Usage", "templates/Templates", "servers/Servers"].map((p) => `src/pages/${p}Page.tsx`)]) {
    assert.ok(manifest[part].isDynamicEntry, part);
    assert.ok(!first.has(manifest[part].file), part);
  }
  const text = (file) => readFile(new URL(file, dist), "utf8");
  for (const file of [...first, ...filesOf("src/pages/skills/SkillsPage.tsx")]) {
    if (file.endsWith(".js")) assert.doesNotMatch(await text(file), /hardBreakEscape|lineEndingBlank/, file);
  }
  const workers = (await readdir(new URL("assets/", dist))).filter((f) => /^markdown\.worker-.*\.js$/.test(f));
  assert.equal(workers.length, 1);
  assert.match(await text(`assets/${workers[0]}`), /hardBreakEscape/, "the mark of the library is not in the worker");
});

test("the console names no other host to load something from", async () => {
  for (const chunk of Object.values(manifest)) {
    for (const file of [chunk.file, ...(chunk.css ?? [])]) {
      const text = await readFile(new URL(file, dist), "utf8");
      assert.doesNotMatch(text, /(?:url\(|@import\s*["']|\bsrc=["']|import\(["'`])\s*["']?https?:/, file);
    }
  }
});
