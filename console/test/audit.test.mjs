// What the page of the audit log promises.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import { adminKey, api, attack, browser, control, exec, forget, inside, keyFor, login, looksGood, open, server } from "./browser.mjs";

const thread = "audit-main";
const path = "/mnt/user-data/workspace";
let annaKey, strangerKey, auditorKey, code;

/** A call of a tool by the agent itself; it may be refused. */
const call = (key, name, input, of = "audit-anna") =>
  fetch(`${server}/api/threads/${of}/tools/call`, { method: "POST", headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" }, body: JSON.stringify({ tool: name, input }) });

before(async () => {
  [annaKey, strangerKey, auditorKey] = await Promise.all([keyFor("anna", "agent"), keyFor("zoe", "agent"), keyFor("aud", "auditor")]);
  code = await api("POST", `/api/threads/${thread}/execute_code`, {
    body: { language: "python", code: "print(call_mcp_tool('demo__list_directory', {'path': '/islands'}))\nfor p in ('/islands/islands.txt', '/islands/../etc/passwd'):\n    try:\n        print(call_mcp_tool('demo__read_text_file', {'path': p}))\n    except Exception as e:\n        print('refused', e)\n" },
  });
  await call(annaKey, "demo__read_text_file", { path: "/islands/islands.txt" });
  await call(annaKey, "demo__read_text_file", { path: "/islands/../etc/hosts" });
  await call(annaKey, "demo__read_text_file", { path: "/shadow", password: "hunter2", amount: 1 });
  await exec(thread, "echo a-needle-in-the-log");
});

after(async () => {
  await browser.close();
  await forget(annaKey);
  await forget(strangerKey);
});

const rows = (page) => page.getByRole("table", { name: "Records" }).getByRole("row");
const query = (page) => new URL(page.url()).searchParams;
const facet = (page, name, value) => page.getByRole("region", { name: `By ${name}` }).getByRole("link", { name: value });
const detail = (page) => page.getByRole("region", { name: "One record" });
const args = (page) => detail(page).getByRole("region", { name: "Arguments", exact: true });

describe("audit", () => {
  test("which tools did anna call last week, and which were denied: three clicks", () =>
    inside(async (page) => {
      await page.getByRole("link", { name: "Audit", exact: true }).click();
      await facet(page, "user", /anna/).click();
      const tools = page.getByRole("region", { name: "By tool" });
      await tools.getByRole("link", { name: /demo__read_text_file/ }).getByText("1 denied").waitFor();
      await facet(page, "outcome", /denied/).click();
      await page.getByRole("button", { name: "Remove the filter Outcome denied" }).waitFor();
      await rows(page).getByText("demo__read_text_file").waitFor();
      assert.equal(await rows(page).count(), 2, "a head and the call that was denied");
      assert.equal(query(page).get("user"), "anna");
      assert.equal(await page.getByRole("combobox", { name: /^Time/ }).inputValue(), "7d");
    }));

  test("an exec has the tool calls below it, with arguments as they are stored, and closes", () =>
    inside(async (page) => {
      const below = rows(page).filter({ hasText: "tool_call" });
      await below.first().waitFor();
      assert.equal(await below.count(), 3);
      await page.getByRole("button", { name: "What came of it: 3" }).click();
      await page.waitForFunction(() => ![...document.querySelectorAll("[role=row]")].some((r) => r.textContent.includes("tool_call")));
      await page.getByRole("button", { name: "What came of it: 3" }).click();
      await below.filter({ hasText: "denied" }).getByRole("link").click();
      await args(page).getByText("/islands/../etc/passwd").waitFor();
      await detail(page).getByText("no path goes up").first().waitFor();
      const branch = detail(page).locator(".branch");
      await branch.first().getByText("execute_code").waitFor();
      assert.equal(await branch.locator(".branch").getByText("tool_call").count(), 3);
    }, { path: `/ui/audit?exec=${code.exec_id}` }));

  test("a value whose name tells of a secret is not shown, and is not stored", () =>
    inside(async (page) => {
      await rows(page).getByRole("link", { name: /tool_call/ }).first().click();
      await args(page).getByText('"password": "***"').waitFor();
      await detail(page).getByText("The records as they are stored").click();
      assert.ok(!(await page.content()).includes("hunter2"));
    }, { path: "/ui/audit?user=anna&q=shadow" }));

  test("numbers are shown as they were written", () =>
    inside(async (page) => {
      await call(annaKey, "demo__read_text_file", { path: "/exact" }).catch(() => undefined);
      await fetch(`${server}/api/threads/audit-anna/tools/call`, { method: "POST", headers: { Authorization: `Bearer ${annaKey}`, "Content-Type": "application/json" }, body: '{"tool":"demo__read_text_file","input":{"path":"/exact-number","amount":12345678901234567891}}' });
      await page.getByRole("button", { name: "Refresh" }).click();
      await rows(page).getByRole("link", { name: /tool_call/ }).first().click();
      await args(page).getByText("12345678901234567891").waitFor();
    }, { path: "/ui/audit?q=exact-number" }));

  test("text of arguments is found", () =>
    inside(async (page) => {
      await page.getByLabel("Text to look for").fill("a-needle-in");
      await page.keyboard.press("Enter");
      await rows(page).getByText("a-needle-in-the-log").first().waitFor();
      assert.equal(query(page).get("q"), "a-needle-in");
      await page.getByLabel("What to look for").selectOption("thread");
      await page.getByLabel("Thread to look for").fill("no-such-thread");
      await page.keyboard.press("Enter");
      await page.getByText("No record fits these filters").waitFor();
      await page.getByRole("button", { name: "Remove all" }).click();
      await rows(page).nth(3).waitFor();
    }, { path: "/ui/audit" }));

  test("the address has all that is looked at", () =>
    inside(async (page) => {
      await facet(page, "tool", /demo__list_directory/).click();
      await page.getByRole("combobox", { name: /^Time/ }).selectOption("24h");
      await rows(page).getByRole("link", { name: /demo__list_directory/ }).first().click();
      await args(page).getByText('"path": "/islands"').waitFor();
      const { page: other, close } = await open();
      await login(other, adminKey, new URL(page.url()).pathname + new URL(page.url()).search);
      await args(other).getByText('"path": "/islands"').waitFor();
      await other.getByRole("button", { name: "Remove the filter Tool demo__list_directory" }).waitFor();
      assert.equal(await other.getByRole("combobox", { name: /^Time/ }).inputValue(), "24h");
      await close();
    }, { path: "/ui/audit" }));

  test("the plot zooms by keys and by dragging, and out again; its table has the same numbers", () =>
    inside(async (page) => {
      const plot = page.getByRole("group", { name: "Records over time" });
      await plot.locator("canvas").waitFor();
      const total = Number((await page.locator(".audit-count strong").innerText()).replace(/\D/g, ""));
      assert.ok(total > 5);
      await page.getByText("As a table").click();
      const cells = await page.locator(".plot-table tbody td:nth-child(2)").allInnerTexts();
      assert.equal(cells.reduce((n, c) => n + Number(c.replace(/\D/g, "")), 0), total);
      await page.getByText("As a table").click();
      await plot.focus();
      await page.keyboard.press("End");
      await page.locator(".plot-said").getByText("Records").waitFor();
      await page.keyboard.press("Shift+ArrowLeft");
      await page.locator(".plot-said").getByText("2 spans").waitFor();
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => new URLSearchParams(location.search).has("since"));
      const long = Date.parse(query(page).get("until")) - Date.parse(query(page).get("since"));
      assert.ok(long > 0 && long < 24 * 3_600_000, `${long} ms`);
      await rows(page).nth(1).waitFor();
      await page.getByRole("button", { name: "Zoom out" }).click();
      await page.waitForFunction((long) => {
        const q = new URLSearchParams(location.search);
        return Date.parse(q.get("until") ?? new Date().toISOString()) - Date.parse(q.get("since")) > long;
      }, long);
      const before = page.url();
      let over;
      for (let i = 0; i < 50; i++) { // counts that come draw the plot anew
        over = await plot.locator(".u-over").elementHandle();
        await page.waitForTimeout(300);
        if (await over.evaluate((e) => e.isConnected)) break;
      }
      const box = await over.boundingBox();
      await page.mouse.move(box.x + box.width * 0.4, box.y + 40);
      await page.mouse.down();
      await page.mouse.move(box.x + box.width * 0.7, box.y + 44, { steps: 5 });
      await page.mouse.up();
      await page.waitForFunction((before) => location.href !== before, before);
      assert.ok(Date.parse(query(page).get("since")) < Date.parse(query(page).get("until")));
    }, { path: "/ui/audit" }));

  test("a count that is not of all says so", async () => {
    const { page, seen, close } = await open();
    await page.route("**/api/audit/summary*", async (r) => {
      const answer = await r.fetch();
      await r.fulfill({ json: { ...(await answer.json()), partial: true, counted_since: new Date().toISOString() } });
    });
    await login(page, adminKey, "/ui/audit");
    await page.getByText("Counted since").waitFor();
    assert.deepEqual(seen.errors, []);
    await close();
  });

  test("the proof, what it covers, and the last checkpoint", () =>
    inside(async (page) => {
      await page.getByRole("link", { name: "Verify" }).click();
      const proof = page.getByRole("region", { name: "Verification" });
      await proof.getByText(/record [\d,.]+, signed/).waitFor();
      await proof.getByRole("button", { name: "Verify now" }).click();
      await proof.getByText(/All [\d,.]+ records are as they were written/).waitFor();
      await proof.getByText(/follow each other; signed to/).first().waitFor();
    }, { key: auditorKey, path: "/ui/audit" }));

  test("a record that was changed is named", async () => {
    const { page, close } = await open();
    await page.route("**/api/audit/verify", (r) => r.fulfill({ json: { ok: false, records: 3, first_bad: { writer: "w1", seq: 4, reason: "changed", segment: "1.jsonl", line: 4, detail: attack("detail") }, writers: [] } }));
    await login(page, adminKey, "/ui/audit?proof=true");
    await page.getByRole("button", { name: "Verify now" }).click();
    await page.getByText("It was changed: its hash does not match.").waitFor();
    await page.getByText("A record is not as it was written").waitFor();
    await close();
  });

  test("an export has what is shown, and no more", () =>
    inside(async (page) => {
      await rows(page).nth(1).waitFor();
      const shown = Number((await page.locator(".audit-count strong").innerText()).replace(/\D/g, ""));
      await call(annaKey, "demo__read_text_file", { path: "/islands/islands.txt" }); // comes later than what is shown
      const saved = async (name) => {
        const coming = page.waitForEvent("download");
        await page.getByRole("button", { name, exact: true }).click();
        const download = await coming;
        return { name: download.suggestedFilename(), lines: (await readFile(await download.path(), "utf8")).trim().split("\n") };
      };
      const csv = await saved("CSV");
      assert.equal(csv.name, "audit.csv");
      assert.equal(csv.lines.length, shown + 1);
      const json = await saved("JSON lines");
      assert.deepEqual(json.lines.map((l) => JSON.parse(l)).map((r) => r.user).filter((u) => u !== "anna"), []);
      assert.equal(json.lines.length, shown);
      const ocsf = await saved("OCSF");
      assert.equal(ocsf.lines.length, shown);
      assert.equal(JSON.parse(ocsf.lines[0]).class_uid, 6003);
    }, { path: "/ui/audit?user=anna&action=tool_call" }));

  test("live shows what is done without a reload, until it is switched off", () =>
    inside(async (page) => {
      await rows(page).nth(1).waitFor();
      await page.getByRole("button", { name: "Live: off" }).click();
      await page.getByRole("button", { name: "Live: on" }).waitFor();
      assert.equal(query(page).get("live"), "true");
      await page.waitForTimeout(500); // the stream begins
      await exec(thread, "echo came-live");
      await rows(page).getByText("came-live").first().waitFor();
      await page.getByRole("button", { name: "Live: on" }).click();
      await page.getByRole("button", { name: "Live: off" }).waitFor();
      await exec(thread, "echo came-later");
      await page.waitForTimeout(1_500);
      assert.equal(await rows(page).getByText("came-later").count(), 0);
    }, { path: `/ui/audit?thread=${thread}` }));

  test("by keys alone: a record is chosen, closed, and its branch too", () =>
    inside(async (page) => {
      await page.getByRole("button", { name: "What came of it: 3" }).focus();
      await page.keyboard.press("Enter");
      assert.equal(await page.getByRole("button", { name: "What came of it: 3" }).getAttribute("aria-expanded"), "false");
      await page.keyboard.press("Tab");
      await page.keyboard.press("Enter");
      await detail(page).getByText("The whole request").waitFor();
      await page.getByRole("link", { name: "Close the record" }).focus();
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => !location.search.includes("record="));
    }, { path: `/ui/audit?exec=${code.exec_id}` }));
});

describe("audit by role", () => {
  test("an agent sees its own records, and no proof", () =>
    inside(async (page) => {
      await rows(page).nth(1).waitFor();
      assert.deepEqual((await page.getByRole("region", { name: "By user" }).getByRole("link").allInnerTexts()).map((t) => t.split("\n")[0].trim()), ["anna"]);
      assert.equal(await page.getByRole("link", { name: "Verify" }).count(), 0);
      await page.goto(`${server}/ui/audit?user=local`);
      await page.getByText("records of other users are for administrators and auditors").first().waitFor();
    }, { key: annaKey, path: "/ui/audit" }));

  test("a stranger sees nothing of others, not by its id either", () =>
    inside(async (page) => {
      const record = (await api("GET", "/api/audit?user=anna&limit=1")).items[0].id;
      await page.getByText(/Nothing was recorded in this time|records in/).first().waitFor();
      assert.equal(await page.getByText("anna").count(), 0);
      await page.goto(`${server}/ui/audit?record=${record}`);
      await page.getByText("There is no such record").waitFor();
    }, { key: strangerKey, path: "/ui/audit" }));

  test("an auditor sees the tenant's, and no way into threads", () =>
    inside(async (page) => {
      await facet(page, "user", /anna/).waitFor();
      await rows(page).getByRole("link").first().click();
      await detail(page).getByText("Outcome").first().waitFor();
      assert.equal(await detail(page).getByRole("link", { name: "open" }).count(), 0);
    }, { key: auditorKey, path: "/ui/audit" }));
});

describe("what records say runs nothing, and hides nothing", () => {
  test("commands, arguments, names of tools, details and users", async () => {
    const parts = { subject: attack("subject"), argument: attack("argument"), tool: `x__${attack("tool")}`, user: attack("user"), detail: attack("detail") };
    for (const [what, text] of Object.entries(parts)) assert.ok((await control(text)).includes(what), `the watch does not see ${what}`);
    await exec(thread, `: '${parts.subject.replaceAll("'", "’")}\u202egpj.exe\u0007'`);
    await call(adminKey, parts.tool.slice(0, 400), { x: `${parts.argument}\u202e\u0000\u200b` }, thread);
    await inside(async (page) => {
      // No name of a user may be such a text, so the answers are made up.
      await page.route(/\/api\/audit\?/, async (r) => {
        const body = await (await r.fetch()).json();
        for (const i of body.items) Object.assign(i, { user: parts.user, actor: parts.user, detail: `${parts.detail}\u202e`, why: { rule: parts.detail } });
        await r.fulfill({ json: body });
      });
      await page.route("**/api/audit/summary*", async (r) => {
        const body = await (await r.fetch()).json();
        for (const f of ["users", "tools", "actions", "outcomes"]) body[f].values.unshift({ value: parts[f === "users" ? "user" : "tool"], count: 1, denied: 1, failed: 0 });
        await r.fulfill({ json: body });
      });
      await page.goto(`${server}/ui/audit?thread=${thread}`);
      await rows(page).getByText("ran('tool')").first().waitFor();
      await rows(page).filter({ hasText: "gpj.exe" }).first().getByText("U+202E").waitFor();
      await facet(page, "user", /onerror/).waitFor();
      for (const text of ["ran('tool')", "gpj.exe"]) {
        await rows(page).filter({ hasText: text }).first().getByRole("link").click();
        await detail(page).getByText("The records as they are stored").click();
        await detail(page).getByText("ran('detail')").first().waitFor();
        await page.waitForTimeout(300);
      }
      await facet(page, "user", /onerror/).click();
      await page.getByRole("button", { name: /Remove the filter User/ }).waitFor();
      await page.waitForTimeout(300);
    }, { path: "/ui/audit" });
  });
});

test("audit: axe finds nothing, in both themes and widths", async () => {
  const first = (p) => rows(p).nth(1).waitFor();
  assert.deepEqual(await looksGood({
    list: ["/ui/audit", async (p) => {
      await first(p);
      await p.locator("canvas").waitFor();
    }],
    record: [`/ui/audit?exec=${code.exec_id}`, async (p) => {
      await rows(p).filter({ hasText: "denied" }).getByRole("link").click();
      await detail(p).getByText("The whole request").waitFor();
      await p.getByText("As a table").click();
    }],
    proof: ["/ui/audit?proof=true&live=true", async (p) => {
      await first(p);
      await p.getByRole("button", { name: "Verify now" }).click();
      await p.getByText("What this covers").waitFor();
    }],
    none: ["/ui/audit?q=nowhere-to-be-found", (p) => p.getByText("No record fits these filters").waitFor()],
  }), []);
});
