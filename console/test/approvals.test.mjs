// What the page of approvals promises. Commands that say ask-first wait for a person: test.sh has the rule.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { adminKey, api, attack, browser, control, forget, inside, keyFor, login, looksGood, open, server } from "./browser.mjs";

let agentKey, strangerKey, developerKey, auditorKey;

before(async () => {
  [agentKey, strangerKey, developerKey, auditorKey] = await Promise.all([keyFor("olaf", "agent"), keyFor("sven", "agent"), keyFor("eve", "developer"), keyFor("aud", "auditor")]);
});

after(async () => {
  await browser.close();
  await forget(agentKey);
});

/** Runs a command of the agent, which waits. Its end is the answer, or the error. */
function asks(command, thread = "approvals-main") {
  return fetch(`${server}/api/threads/${thread}/exec`, { method: "POST", headers: { Authorization: `Bearer ${agentKey}`, "Content-Type": "application/json" }, body: JSON.stringify({ command }) }).then(async (a) => ({ ...(await a.json()), http: a.status }));
}

/** The request of a command, once it waits. */
async function waiting(text) {
  for (let i = 0; i < 200; i++) {
    const { items } = await api("GET", "/api/approvals?state=pending");
    const found = items.find((r) => JSON.stringify(r.arguments).includes(text));
    if (found !== undefined) return found;
    await new Promise((r) => setTimeout(r, 100));
  }
  throw new Error(`nothing waits for ${text}`);
}

const rows = (page) => page.getByRole("table", { name: "Requests" }).getByRole("row");
const detail = (page) => page.getByRole("region", { name: "One request" });
const choose = (page, id) => page.goto(`${server}/ui/approvals?id=${id}`);

describe("approvals", () => {
  test("a call appears without a reload, is approved once, and asks again the next time", () =>
    inside(async (page) => {
      await page.getByText("No call waits for an approval").waitFor();
      const ended = asks("echo ask-first one");
      await rows(page).nth(1).waitFor();
      await page.waitForFunction(() => document.title.startsWith("(1) Approvals"));
      await rows(page).getByRole("link").first().click();
      await detail(page).getByText("echo ask-first one").waitFor();
      await detail(page).getByText("a person has to agree").waitFor();
      await detail(page).getByText("No call of this tool was approved before").waitFor();
      await detail(page).getByRole("button", { name: "Approve once" }).click();
      assert.equal((await ended).stdout, "ask-first one\n");
      await detail(page).getByText(/Approved by local/).waitFor();
      await page.waitForFunction(() => document.activeElement.textContent.startsWith("Approved by"));
      assert.equal(await page.getByRole("button", { name: "Deny" }).count(), 0);
      const again = asks("echo ask-first one");
      const r = await waiting("ask-first one");
      await choose(page, r.id);
      await detail(page).getByText("The same arguments as").waitFor();
      await detail(page).getByLabel(/Why/).fill("once was enough");
      await detail(page).getByRole("button", { name: "Deny" }).click();
      const refused = await again;
      assert.equal(refused.http, 403);
      assert.match(refused.detail, /once was enough/);
      await detail(page).getByText("once was enough").waitFor();
    }, { path: "/ui/approvals" }));

  test("arguments are compared with the last approved call", () =>
    inside(async (page) => {
      const ended = asks("echo ask-first two");
      const r = await waiting("ask-first two");
      await choose(page, r.id);
      await detail(page).locator("del", { hasText: "ask-first one" }).waitFor();
      await detail(page).locator("ins", { hasText: "ask-first two" }).waitFor();
      await detail(page).getByText("Compare", { exact: true }).click();
      await detail(page).getByRole("region", { name: "Arguments", exact: true }).waitFor();
      assert.equal(await detail(page).locator("ins, del").count(), 0);
      await detail(page).getByRole("button", { name: "For these arguments" }).click();
      assert.equal((await ended).stdout, "ask-first two\n");
      assert.equal((await asks("echo ask-first two")).stdout, "ask-first two\n", "the same arguments ask nobody");
    }, { path: "/ui/approvals" }));

  test("an approval for the thread holds for other arguments, and not for another thread", () =>
    inside(async (page) => {
      const ended = asks("echo ask-first three", "approvals-other");
      await choose(page, (await waiting("ask-first three")).id);
      await detail(page).getByRole("button", { name: "For the thread" }).click();
      assert.equal((await ended).stdout, "ask-first three\n");
      assert.equal((await asks("echo ask-first four", "approvals-other")).stdout, "ask-first four\n");
      const elsewhere = asks("echo ask-first four");
      const r = await waiting("ask-first four");
      await api("POST", `/api/approvals/${r.id}`, { body: { decision: "deny" } });
      assert.equal((await elsewhere).http, 403);
    }, { path: "/ui/approvals" }));

  test("of two who decide at once, the second sees who was first, and changes nothing", async () => {
    const ended = asks("echo ask-first both");
    const r = await waiting("ask-first both");
    const first = await open();
    const second = await open();
    await login(first.page, developerKey, `/ui/approvals?id=${r.id}`);
    await login(second.page, adminKey, `/ui/approvals?id=${r.id}`);
    await detail(second.page).getByRole("button", { name: "Approve once" }).waitFor();
    // The second one has not heard of the first one's decision.
    let quiet = true;
    await second.page.route(`**/api/approvals/${r.id}`, (route) => (quiet && route.request().method() === "GET" ? route.abort() : route.continue()));
    await detail(first.page).getByLabel(/Why/).fill("not on a Saturday");
    await detail(first.page).getByRole("button", { name: "Deny" }).click();
    await detail(first.page).getByText(/Denied by eve/).waitFor();
    await detail(second.page).getByRole("button", { name: "Approve once" }).click();
    quiet = false;
    await detail(second.page).getByText("Another decision was first. Yours changed nothing.").waitFor();
    await detail(second.page).getByText(/Denied by eve/).waitFor();
    await detail(second.page).getByText("not on a Saturday").waitFor();
    assert.equal((await ended).http, 403);
    const after = await api("GET", `/api/approvals/${r.id}`);
    assert.deepEqual([after.state, after.decision.by], ["denied", "eve"]);
    await first.close();
    await second.close();
  });

  test("who only looks sees that another decided", () =>
    inside(async (page) => {
      const ended = asks("echo ask-first watched");
      const r = await waiting("ask-first watched");
      await choose(page, r.id);
      await detail(page).getByRole("button", { name: "Deny" }).waitFor();
      await api("POST", `/api/approvals/${r.id}`, { key: developerKey, body: { decision: "approve", reason: "fine" } });
      await detail(page).getByText(/Approved by eve/).waitFor();
      assert.equal(await page.getByRole("button", { name: "Deny" }).count(), 0);
      assert.equal(await detail(page).getByText("Another decision was first").count(), 0);
      assert.equal((await ended).http, 200);
      await page.getByRole("link", { name: "All", exact: true }).click();
      await rows(page).filter({ hasText: "denied" }).first().waitFor();
    }, { path: "/ui/approvals" }));

  test("a decision by keys alone", () =>
    inside(async (page) => {
      const ended = asks("echo ask-first keys");
      await waiting("ask-first keys");
      const link = rows(page).getByRole("link").first();
      await link.waitFor();
      await link.focus();
      await page.keyboard.press("Enter");
      const button = detail(page).getByRole("button", { name: "Approve once" });
      await button.waitFor();
      for (let i = 0; i < 20 && !(await button.evaluate((b) => b === document.activeElement)); i++) await page.keyboard.press("Tab");
      await page.keyboard.press("Enter");
      assert.equal((await ended).http, 200);
      await page.waitForFunction(() => document.activeElement.textContent.startsWith("Approved by"));
    }, { path: "/ui/approvals" }));

  test("a notification comes when it was asked for, and not before", async () => {
    const it = await open();
    await it.page.addInitScript(() => {
      globalThis.asked = 0;
      globalThis.shown = [];
      globalThis.Notification = class {
        static requestPermission = () => {
          globalThis.asked++;
          return Promise.resolve("granted");
        };
        constructor(title, options) {
          globalThis.shown.push({ title, ...options });
          globalThis.last = this;
        }
        close() {}
      };
    });
    await login(it.page, adminKey, "/ui/approvals");
    const early = asks("echo ask-first early");
    const r1 = await waiting("ask-first early");
    await rows(it.page).nth(1).waitFor();
    await it.page.waitForTimeout(1_000);
    assert.deepEqual(await it.page.evaluate(() => [asked, shown.length]), [0, 0]);
    await it.page.getByRole("button", { name: "Notify me" }).click();
    await it.page.getByRole("button", { name: "Notifications: on" }).waitFor();
    await it.page.getByRole("link", { name: "Threads", exact: true }).click(); // another page of the same tab
    const late = asks("echo ask-first late");
    const r2 = await waiting("ask-first late");
    await it.page.waitForFunction(() => shown.length > 0);
    const shown = await it.page.evaluate(() => globalThis.shown);
    assert.deepEqual(shown.map((s) => s.tag), [r2.id], "only what came after");
    assert.match(shown[0].body, /exec\nolaf in approvals-main/);
    await it.page.evaluate(() => last.onclick());
    await detail(it.page).getByText("ask-first late").waitFor();
    for (const r of [r1, r2]) await api("POST", `/api/approvals/${r.id}`, { body: { decision: "deny" } });
    await Promise.all([early, late]);
    await it.page.getByRole("link", { name: "Approvals", exact: true }).click();
    await it.page.getByRole("button", { name: "Notifications: on" }).click();
    await it.page.getByRole("button", { name: "Notify me" }).waitFor();
    assert.deepEqual(it.seen, { ran: [], elsewhere: [], violations: [], errors: [] });
    await it.close();
  });
});

describe("approvals by role", () => {
  test("an agent sees its own, without buttons; a stranger sees none", async () => {
    const ended = asks("echo ask-first role");
    const r = await waiting("ask-first role");
    await inside(async (page) => {
      await page.getByText("Your role does not decide on them").waitFor();
      await rows(page).getByRole("link").first().click();
      await detail(page).getByText("echo ask-first role").waitFor();
      for (const name of ["Approve once", "For these arguments", "For the thread", "Deny", "Notify me"]) assert.equal(await page.getByRole("button", { name }).count(), 0, name);
    }, { key: agentKey, path: "/ui/approvals" });
    await inside(async (page) => {
      await page.getByText("No call waits for an approval").waitFor();
      await choose(page, r.id);
      await page.getByText("There is no such request").waitFor();
    }, { key: strangerKey, path: "/ui/approvals" });
    await inside(async (page) => {
      await page.getByRole("heading", { level: 1, name: "Audit" }).waitFor();
      assert.equal(await page.getByRole("link", { name: "Approvals", exact: true }).count(), 0);
    }, { key: auditorKey });
    await api("POST", `/api/approvals/${r.id}`, { body: { decision: "deny" } });
    await ended;
  });
});

describe("what a call says runs nothing, and hides nothing", () => {
  test("arguments, tools, users and reasons", async () => {
    const parts = { argument: attack("argument"), tool: attack("tool"), user: attack("user"), reason: attack("reason") };
    for (const [what, text] of Object.entries(parts)) assert.ok((await control(text)).includes(what), `the watch does not see ${what}`);
    const ended = asks(`echo ask-first safe; : '${parts.argument.replaceAll("'", "’")}\u202efdp.exe\u200b\u001b[8m'`);
    const r = await waiting("fdp.exe");
    await inside(async (page) => {
      await page.route(/\/api\/approvals(\?|\/)/, async (route) => {
        const answer = await route.fetch();
        const body = await answer.json();
        for (const i of body.items ?? [body]) Object.assign(i, { tool: `${parts.tool}\u202e`, user: parts.user, server: parts.tool, why: parts.reason, annotations: { title: parts.tool } });
        await route.fulfill({ response: answer, json: body });
      });
      await choose(page, r.id);
      for (const code of ["U+202E", "U+200B"]) await detail(page).getByRole("region", { name: /Arguments/ }).getByText(code).first().waitFor();
      await detail(page).getByText("ran('tool')").first().waitFor();
      await rows(page).getByText("ran('tool')").first().waitFor();
      await detail(page).getByLabel(/Why/).fill(parts.reason);
      await detail(page).getByRole("button", { name: "Deny" }).click();
      await detail(page).locator(".verdict").getByText("ran('reason')").waitFor();
      await page.waitForTimeout(300);
    }, { path: "/ui/approvals" });
    assert.equal((await ended).http, 403);
  });
});

test("approvals: axe finds nothing, in both themes and widths", async () => {
  const ended = asks("echo ask-first looks good");
  const r = await waiting("looks good");
  const found = await looksGood({
    list: ["/ui/approvals", (p) => rows(p).nth(1).waitFor()],
    request: [`/ui/approvals?id=${r.id}`, async (p) => {
      await detail(p).getByRole("button", { name: "Deny" }).waitFor();
      await detail(p).locator("ins").first().waitFor();
    }],
    all: ["/ui/approvals?all=true", (p) => rows(p).nth(1).waitFor()],
    missing: ["/ui/approvals?id=nothing", (p) => p.getByText("There is no such request").waitFor()],
  });
  const { items } = await api("GET", "/api/approvals?state=denied&limit=1");
  found.push(...(await looksGood({ verdict: [`/ui/approvals?all=true&id=${items[0].id}`, (p) => p.locator(".verdict").waitFor()] })));
  await api("POST", `/api/approvals/${r.id}`, { body: { decision: "deny" } });
  await ended;
  assert.deepEqual(found, []);
});
