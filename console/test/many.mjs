// How soon pages answer with many threads: console/test/many.sh starts the server. Prints figures, and fails on what is no matter of speed.
import assert from "node:assert/strict";
import { adminKey, api, browser, login, open, server } from "./browser.mjs";

const total = Number(process.env.SKERRY_MANY);
const { page, close } = await open();
await login(page, adminKey, "/ui/overview");

/** Opens an address as a person does who has the page open, and says after how many ms something is there. */
async function first(name, path, found) {
  const times = [];
  for (let i = 0; i < 5; i++) {
    await page.goto("about:blank");
    const began = performance.now();
    await page.goto(server + path, { waitUntil: "commit" });
    await found(page);
    times.push(Math.round(performance.now() - began));
  }
  times.sort((a, b) => a - b);
  console.log(`${name}: ${times[2]} ms (${times[0]} to ${times[4]}), the whole page loaded anew`);
}

const table = page.getByRole("table", { name: "Threads" });
const rows = table.getByRole("row");
assert.equal((await api("GET", "/api/threads?user=*&limit=1")).total, total);
await first("list", "/ui/threads", () => rows.nth(5).waitFor());
await first("search of a text that one thread has", `/ui/threads?q=t-${String(Math.floor(total / 2)).padStart(6, "0")}`, () => page.getByText(`t-${String(Math.floor(total / 2)).padStart(6, "0")}`).waitFor());
await first("of one user", "/ui/threads?user=user-7&sort=thread_id", () => rows.nth(5).waitFor());
await first("by label", "/ui/threads?label=%5B%22team%3Dt3%22%5D", () => rows.nth(5).waitFor());

// Scrolling: a list of thousands of rows shows no hole.
await page.goto(`${server}/ui/threads`);
await rows.nth(5).waitFor();
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
  assert.ok(seen.rows < 100, `${seen.rows} rows are in the page`);
}
console.log(`scrolling: 40 steps of 1,600 px in ${Math.round(performance.now() - began)} ms, ${holes} with a hole`);
await close();
await browser.close();
