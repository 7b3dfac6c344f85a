// How soon pages answer with many threads and a long audit log: console/test/many.sh starts the server. Prints figures, and
// fails on what is no matter of speed.
import assert from "node:assert/strict";
import { adminKey, api, browser, keyFor, login, open, put, server } from "./browser.mjs";

const total = Number(process.env.SKERRY_MANY);
const records = Number(process.env.SKERRY_BENCH_RECORDS);
const { page, close } = await open();
await login(page, adminKey, "/ui/overview");

const late = [];

/** Waits until something is seen. A locator's own waitFor looks only every half second after a while. */
async function seen(what) {
  for (const end = performance.now() + 20_000; performance.now() < end; await new Promise((r) => setTimeout(r, 15))) if (await what.isVisible()) return;
  throw new Error(`${what} is not seen after 20 s`);
}

/** Opens an address as a person does who has the page open, and says after how many ms its first useful content is there. */
async function first(name, path, found, on = page) {
  const times = [];
  for (let i = 0; i < 5; i++) {
    await on.goto("about:blank");
    const began = performance.now();
    await on.goto(server + path, { waitUntil: "commit" });
    try {
      await found(on);
    } catch (e) {
      console.log(`| ${name} | not seen: ${e.message.split("\n")[0]} | |`);
      late.push(name);
      return;
    }
    times.push(Math.round(performance.now() - began));
  }
  times.sort((a, b) => a - b);
  console.log(`| ${name} | ${times[2]} | ${times[0]} to ${times[4]} |`);
  if (times[2] > 1000) late.push(name);
}

const threads = page.getByRole("table", { name: "Threads" });
const rows = (on) => on.getByRole("table", { name: "Records" }).getByRole("row");
const count = (on) => seen(on.locator(".audit-count strong"));
const one = `thread-${String(Math.min(250, total - 1)).padStart(3, "0")}-${String(Math.floor((total - 1) / 500 / 2)).padStart(2, "0")}`;
assert.equal((await api("GET", "/api/threads?user=*&limit=1")).total, total);
const { items: calls } = await api("GET", "/api/audit?user=user-000&action=tool_call&limit=1");
assert.ok((await api("GET", "/api/audit/summary")).count >= records);

console.log(`with ${total} threads and ${records} records:\n| page | ms, the median of 5 | from, to |\n|---|---|---|`);
await first("overview", "/ui/overview", (on) => seen(on.getByRole("region", { name: "Limits" })));
await first("threads", "/ui/threads", () => seen(threads.getByRole("row").nth(5)));
await first("threads: a text that one has", `/ui/threads?q=${one}`, (on) => seen(on.getByText(one).first()));
await first("threads: of one user, by name", "/ui/threads?user=user-007&sort=thread_id", () => seen(threads.getByRole("row").nth(5)));
await first("threads: by label", "/ui/threads?label=%5B%22team%3Dt3%22%5D", () => seen(threads.getByRole("row").nth(5)));
await first("audit: rows of the last week", "/ui/audit", (on) => seen(rows(on).nth(5)));
await first("audit: counts and plot of the last week", "/ui/audit", async (on) => {
  await count(on);
  await seen(on.getByRole("group", { name: "Records over time" }).locator("canvas"));
});
await first("audit: counts of all time", "/ui/audit?last=all", count);
await first("audit: of the busiest user", "/ui/audit?user=user-000", (on) => seen(rows(on).nth(5)));
await first("audit: what was denied", "/ui/audit?outcome=denied", (on) => seen(rows(on).nth(1)));
await first("audit: denied, of one user", "/ui/audit?outcome=denied&user=user-001&last=all", async (on) => {
  await count(on);
  await seen(rows(on).nth(1).or(on.getByText("No record fits these filters")).first());
});
await first("audit: a text of arguments", "/ui/audit?q=report-777&last=all", (on) => seen(rows(on).nth(1)));
await first("audit: one exec as a tree", `/ui/audit?exec=${calls[0].exec}&last=all`, (on) => seen(rows(on).filter({ hasText: "tool_call" }).first()));
await first("audit: one record", `/ui/audit?record=${calls[0].id}&last=all`, (on) => seen(on.getByRole("region", { name: "One record" }).getByRole("region", { name: "Arguments", exact: true })));
await first("approvals", "/ui/approvals", (on) => seen(on.getByText("No call waits for an approval").first()));
await first("tools", "/ui/tools", (on) => seen(on.getByText("This thread has no MCP server")));
await first("skills", "/ui/skills", (on) => seen(on.getByRole("region", { name: "Skills", exact: true }).getByRole("link").first()));
await first("plugins", "/ui/plugins", (on) => seen(on.getByRole("table", { name: "Plugins" }).getByRole("row").nth(1)));
await first("policy", "/ui/policy", (on) => seen(on.getByRole("region", { name: "The rules" })));
await first("policy: past calls of a week", "/ui/policy?view=past", (on) => seen(on.getByText(/calls$/).first()));
await first("secrets", "/ui/secrets", (on) => seen(on.getByText("There is no secret")));
await first("keys", "/ui/keys", (on) => seen(on.getByRole("region", { name: "Keys" }).getByRole("link").first()));
await first("usage", "/ui/usage", (on) => seen(on.getByRole("region", { name: "Limits" })));
await first("templates", "/ui/templates", (on) => seen(on.getByRole("link", { name: "base" }).first()));
await first("servers", "/ui/servers", (on) => seen(on.getByRole("list", { name: "Servers" }).getByRole("listitem").first()));

const busiest = await open();
const own = await keyFor("user-000", "agent");
await put("thread-000-00", "/mnt/user-data/workspace/notes.md", "notes", own); // its folders
await login(busiest.page, own, "/ui/threads");
await first("thread: its facts", "/ui/threads/thread-000-00", (on) => seen(on.getByText("Last active")), busiest.page);
await first("thread: its timeline of all time", "/ui/threads/thread-000-00/timeline", (on) => seen(on.locator(".waterfall-call, .timeline .empty").first()), busiest.page);
await busiest.close();

/** Scrolls a list and counts the steps after which a part of it showed no row. */
async function scroll(name, path, table) {
  await page.goto(server + path);
  await table.getByRole("row").nth(5).waitFor();
  let holes = 0;
  const began = performance.now();
  for (let i = 0; i < 40; i++) {
    await table.evaluate((g) => g.scrollBy(0, 1600));
    await page.waitForTimeout(50);
    const seen = await table.evaluate((g) => {
      const box = g.getBoundingClientRect();
      let empty = 0;
      for (let y = box.top + 60; y < box.bottom - 10; y += 40) if (document.elementFromPoint(box.left + 40, y)?.closest('[role="row"]') === null) empty++;
      return { empty, end: g.scrollTop + g.clientHeight >= g.scrollHeight - 2, rows: g.querySelectorAll('[role="row"]').length };
    });
    if (!seen.end && seen.empty > 0) holes++;
    assert.ok(seen.rows < 200, `${seen.rows} rows are in the page`);
  }
  console.log(`scrolling ${name}: 40 steps of 1,600 px in ${Math.round(performance.now() - began)} ms, ${holes} with a hole`);
}
await scroll("threads", "/ui/threads", threads);
await scroll("records", "/ui/audit?last=all", page.getByRole("table", { name: "Records" }));

await page.goto(`${server}/ui/audit?proof=true`);
await page.getByRole("button", { name: "Verify now" }).waitFor();
const began = performance.now();
await page.getByRole("button", { name: "Verify now" }).click();
await page.getByText(/All [\d,.]+ records are as they were written/).waitFor({ timeout: 300_000 });
console.log(`verification of all records, chain and signatures: ${Math.round(performance.now() - began)} ms`);
console.log(late.length === 0 ? "each page shows its first useful content within a second" : `later than a second: ${late.join("; ")}`);
await close();
await browser.close();
