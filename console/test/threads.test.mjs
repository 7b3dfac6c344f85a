// What the list of threads, the processes of a thread and the overview promise to administrators and to others.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { adminKey, api, attack, browser, control, exec, forget, inside, keyFor, looksGood, server } from "./browser.mjs";

const mine = "many-admin";
const hers = "many-ann";
const otherTenantKey = process.env.SKERRY_OTHER_KEY; // of an administrator called nora, too
let agentKey, actingKey, auditorKey;

before(async () => {
  agentKey = await keyFor("nora", "agent");
  [actingKey, auditorKey] = await Promise.all([keyFor("root", "admin", { act_for: true }), keyFor("aud", "auditor")]);
  await exec(mine, "true");
  await api("POST", `/api/threads/${hers}/exec`, { key: agentKey, body: { command: "echo 'her secret plan' > /mnt/user-data/workspace/plan.md; echo done" } });
  await api("PUT", `/api/threads/${hers}/sandbox`, { key: agentKey, body: { labels: { topic: attack("label"), project: "Aurora" } } });
});

after(async () => {
  await browser.close();
  await forget(agentKey);
  await api("DELETE", `/api/threads/${mine}`);
});

const list = (page) => page.getByRole("table", { name: "Threads" });

describe("threads of a tenant", () => {
  test("an administrator finds a thread of another user, whose labels are text", async () => {
    assert.notDeepEqual(await control(attack("label")), []);
    await inside(async (page) => {
      await page.getByLabel("Search threads").fill("aurora");
      await page.keyboard.press("Enter");
      await list(page).getByText(hers).waitFor();
      await list(page).getByText("nora").waitFor();
      assert.equal(await list(page).getByText(mine).count(), 0);
      await page.getByRole("status").getByText(/^1 of \d+ threads$/).waitFor();
      assert.equal(new URL(page.url()).searchParams.get("q"), "aurora");
    }, { path: "/ui/threads" });
  });

  test("a key that may not act for others opens none of theirs, and one that may does it in their name", async () => {
    await inside(async (page) => {
      await list(page).getByText(hers).waitFor();
      assert.equal(await page.getByRole("link", { name: hers }).count(), 0);
      await page.goto(`${server}/ui/threads/${hers}?of=nora`);
      await page.getByText("this key may not act for others").waitFor();
      assert.equal(await page.getByText("plan.md").count(), 0);
    }, { path: "/ui/threads?q=many" });
    await inside(async (page) => {
      await page.getByRole("link", { name: hers }).click();
      await page.getByText("You act for nora").waitFor();
      await page.getByRole("link", { name: /her secret plan/ }).click();
      await page.locator(".output").getByText("done").waitFor();
      assert.equal(new URL(page.url()).searchParams.get("of"), "nora");
      await page.getByRole("link", { name: "Files" }).click();
      await page.getByRole("row", { name: "workspace" }).getByRole("button").first().click();
      await page.getByRole("row", { name: /plan\.md/ }).waitFor();
      assert.equal(await page.getByRole("link", { name: "Terminal" }).count(), 0);
      await page.getByRole("button", { name: "Hibernate" }).click();
      await page.locator(".facts .state").first().getByText("hibernated").waitFor();
    }, { key: actingKey, path: "/ui/threads?q=aurora" });
    const { items } = await api("GET", "/api/audit?action=sandbox_hibernate&user=nora");
    assert.equal(items[0].actor ?? items[0].on_behalf_by, "root", JSON.stringify(items[0]));
  });

  test("another tenant sees none of it, and no number of it", () =>
    inside(async (page) => {
      await page.getByText("There is no thread yet").waitFor();
      for (const path of [`/ui/threads/${hers}?of=nora`, `/ui/threads/${hers}`]) {
        await page.goto(server + path);
        await page.getByText("has no thread of this id").or(page.getByText("You have no thread of this id")).or(page.getByText("may not act for others")).first().waitFor();
      }
      await page.goto(`${server}/ui/overview`);
      await page.getByText("Threads of the tenant").waitFor();
      assert.equal(await page.locator(".tile").filter({ hasText: "Threads of the tenant" }).locator(".tile-value").innerText(), "0");
      assert.equal(await page.getByText("Execs a minute").count(), 0); // of all tenants: for operators
      assert.ok(!(await page.content()).includes("nora/"));
    }, { key: otherTenantKey, path: "/ui/threads" }));

  test("an agent has no choice of users, and no list of others by address", () =>
    inside(async (page) => {
      await page.getByRole("link", { name: hers }).waitFor();
      assert.equal(await page.getByLabel("Of whom").count(), 0);
      await page.goto(`${server}/ui/threads?user=*`);
      await page.getByText("threads of other users are for administrators").waitFor();
      assert.equal(await page.getByText(mine).count(), 0);
    }, { key: agentKey, path: "/ui/threads" }));

  test("filters by user, template, age and order are in the address", () =>
    inside(async (page) => {
      await page.getByLabel("Of whom").selectOption({ label: "Mine" });
      await page.getByLabel("Order").selectOption("thread_id");
      await page.getByLabel("Last activity").selectOption("1h");
      await page.getByLabel("Template of the sandbox").selectOption("base");
      await page.getByRole("link", { name: mine }).waitFor();
      assert.equal(await list(page).getByText(hers).count(), 0);
      const address = new URL(page.url());
      assert.deepEqual(["sort", "age", "template"].map((n) => address.searchParams.get(n)), ["thread_id", "1h", "base"]);
      await page.getByLabel("Last activity").selectOption("idle30d");
      await page.getByText("No thread fits these filters").waitFor();
      await page.getByRole("button", { name: "Remove the filters" }).click();
      await list(page).getByText(hers).waitFor();
    }, { path: "/ui/threads" }));
});

describe("usage", () => {
  /** A row of the list, by the thread's name. */
  const row = (page, name) => list(page).getByRole("row").filter({ hasText: name });

  // Files are measured when a sandbox has ended.
  const hibernated = async (key, thread, execs) => {
    await api("POST", `/api/threads/${thread}/sandbox/hibernate`, { key, body: { force: true } });
    for (let i = 0; i < 100; i++) {
      const { usage } = await api("GET", `/api/threads/${thread}`, { key });
      if (usage?.disk_bytes >= 1024 * 1024 && usage.execs >= execs) return usage;
      await new Promise((done) => setTimeout(done, 100));
    }
    assert.fail(`${thread} was not measured`);
  };

  before(async () => {
    await api("POST", `/api/threads/${hers}/exec`, { key: agentKey, body: { command: "head -c 3145728 /dev/urandom >/mnt/user-data/workspace/large" } });
    await exec(mine, "head -c 1572864 /dev/urandom >/mnt/user-data/workspace/large");
    const [large, small] = await Promise.all([hibernated(agentKey, hers, 2), hibernated(undefined, mine, 2)]);
    assert.ok(large.disk_bytes > small.disk_bytes);
  });

  test("an administrator finds the largest threads of the tenant, and the address keeps order and size", () =>
    inside(async (page) => {
      await page.getByLabel("Order").selectOption({ label: "Largest files first" });
      await page.getByLabel("Size of the files").selectOption({ label: "1.0 MiB and more" });
      await row(page, hers).getByText(/^3\.0 MiB/).waitFor();
      await row(page, mine).getByText(/^1\.5 MiB/).waitFor();
      const names = await list(page).locator(".grid-body .cell-thread").allInnerTexts();
      assert.ok(names.indexOf(hers) < names.indexOf(mine), names.join(" "));
      const address = new URL(page.url());
      assert.deepEqual(["sort", "disk"].map((n) => address.searchParams.get(n)), ["disk_bytes", "1"]);
      await page.reload();
      await row(page, hers).getByText(/· \d+ execs/).waitFor();
      assert.equal(await page.getByLabel("Order").inputValue(), "disk_bytes");
      await page.getByLabel("Size of the files").selectOption({ label: "10.0 GiB and more" });
      await page.getByText("No thread fits these filters").waitFor();
    }, { path: "/ui/threads" }));

  test("an agent sees its own usage alone, and the thread's page shows it", () =>
    inside(async (page) => {
      await row(page, hers).getByText(/^3\.0 MiB/).waitFor();
      assert.equal(await list(page).getByText(mine).count(), 0);
      await page.getByRole("link", { name: hers }).click();
      await page.locator(".facts").getByText("Used so far").waitFor();
      await page.locator(".facts").getByText(/\d+ execs in \d/).waitFor();
    }, { key: agentKey, path: "/ui/threads?sort=disk_bytes" }));

  test("on a phone the size has a column where the reader asked for sizes", () =>
    inside(async (page) => {
      await row(page, hers).getByText(/^3\.0 MiB/).waitFor();
      assert.equal(await row(page, hers).locator("time").isVisible(), false);
      await page.getByLabel("Order").selectOption({ label: "Latest first" });
      await row(page, hers).locator("time").waitFor();
      assert.equal(await row(page, hers).getByText(/^3\.0 MiB/).isVisible(), false);
    }, { path: "/ui/threads?sort=disk_bytes", viewport: { width: 390, height: 800 } }));

  test("another tenant sees none of it", () =>
    inside(async (page) => {
      await page.getByText("No thread fits these filters").waitFor();
      assert.equal(await page.getByText("MiB", { exact: false }).filter({ hasText: "exec" }).count(), 0);
    }, { key: otherTenantKey, path: "/ui/threads?sort=disk_bytes&user=*" }));

  test("axe finds nothing, and nothing is wider than the page", async () => {
    const found = await looksGood({ usage: ["/ui/threads?sort=disk_bytes&disk=1", (p) => row(p, hers).waitFor()] });
    assert.deepEqual(found, []);
  });
});

describe("processes", () => {
  test("a running command is seen with what it uses, and is ended", async () => {
    const busy = exec(mine, "exec -a 'busy <b>loop</b>' python3 -c 'while True: pass'", { timeout_s: 60 }).catch((e) => e);
    await inside(async (page) => {
      const row = page.getByRole("table", { name: "Processes" }).getByRole("row").filter({ hasText: "busy <b>loop</b>" });
      await row.waitFor();
      await row.locator(".cell-cpu").getByText(/^[1-9][0-9]* %$/).waitFor();
      await page.getByLabel(/^CPU: \d\.\d\d of \d/).waitFor();
      await page.getByLabel(/^Memory: .* of /).waitFor();
      await page.getByLabel(/^Files: .* of /).waitFor();
      await row.getByRole("button", { name: /^End the exec of process/ }).click();
      await page.getByText("Nothing runs here now").waitFor();
    }, { path: `/ui/threads/${mine}/processes` });
    await busy;
  });

  test("what a command left is ended alone", async () => {
    await exec(mine, "nohup sleep 300 >/dev/null 2>&1 & nohup sleep 301 >/dev/null 2>&1 &", { leave_processes: true });
    await inside(async (page) => {
      await page.getByRole("row").filter({ hasText: "sleep 300" }).getByRole("button", { name: /^End process/ }).click();
      await page.getByRole("row").filter({ hasText: "sleep 300" }).waitFor({ state: "detached" });
      assert.equal(await page.getByRole("row").filter({ hasText: "sleep 301" }).count(), 1);
      await page.getByRole("row").filter({ hasText: "sleep 301" }).getByRole("button", { name: /^End process/ }).click();
      await page.getByText("Nothing runs here now").waitFor();
    }, { path: `/ui/threads/${mine}/processes` });
  });
});

describe("overview", () => {
  test("an operator sees the server's numbers, and plots after a while", () =>
    inside(async (page) => {
      await page.getByRole("heading", { name: "Execs a minute" }).waitFor();
      await page.locator(".tile").filter({ hasText: "Disk of the data folder" }).getByText(/free of/).waitFor();
      const { times } = await api("GET", "/api/overview");
      if (times.length >= 2) await page.getByRole("group", { name: "Sandboxes" }).waitFor();
      await page.getByLabel("Span of the plots").selectOption("day");
      assert.equal(new URL(page.url()).searchParams.get("window"), "day");
    }, { path: "/ui/overview" }));

  test("an operator sees what the server finds of itself, and what to do about it", () =>
    inside(async (page) => {
      const { items } = await api("GET", "/api/doctor");
      assert.ok(items.some((l) => l.check === "driver" && l.state === "ok"));
      const findings = page.getByRole("region", { name: "Findings" });
      await findings.getByText(/In order: .*driver/).waitFor();
      // test.sh switches quotas off.
      const quota = findings.getByRole("listitem").filter({ hasText: "disk quota" });
      await quota.getByText("warning").waitFor();
      await quota.getByText("What to do: set disk_quota to auto").waitFor();
    }, { path: "/ui/overview" }));

  test("an auditor and an agent are refused by the server", async () => {
    for (const key of [auditorKey, agentKey, otherTenantKey]) {
      for (const path of ["/api/overview", "/api/doctor"]) {
        const answer = await fetch(server + path, { headers: { Authorization: `Bearer ${key}` } });
        assert.equal(answer.status, 403);
      }
    }
  });

  test("axe finds nothing, and nothing is wider than the page", async () => {
    const found = await looksGood({
      overview: ["/ui/overview", (p) => p.getByRole("heading", { name: "Execs a minute" }).waitFor()],
      threads: ["/ui/threads", (p) => list(p).getByText(mine).waitFor()],
      processes: [`/ui/threads/${mine}/processes`, (p) => p.getByText("Nothing runs here now").waitFor()],
    });
    assert.deepEqual(found, []);
  });
});
