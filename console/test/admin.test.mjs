// What the pages of secrets, keys, usage, templates and servers promise: each role sees its own, and a value that is a secret is
// in one request and nowhere else.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import { adminKey, api, attack, browser, control, exec, forget, inside, keyFor, looksGood, server } from "./browser.mjs";

const otherKey = process.env.SKERRY_OTHER_KEY; // the administrator of another tenant
const thread = "admin-main";
const value = "very-secret-4711";
const hostileServer = `x<img src=y onerror="ran('scope')">`; // a name of a server has no slash
const hostileName = attack("key").slice(0, 120);
let agentKey, auditorKey, ciKey;

before(async () => {
  [agentKey, auditorKey, ciKey] = await Promise.all([keyFor("ira", "agent"), keyFor("uma", "auditor"), keyFor("cleo", "agent", { threads: ["ci-*"] })]);
  await api("PUT", "/api/secrets/CRM_TOKEN?scope=tenant", { body: { value: "of-the-tenant-0815", exec: false } });
  await api("PUT", "/api/secrets/EXEC_TOKEN?scope=tenant", { body: { value: "of-all-execs-0815", exec: true } });
  await api("PUT", `/api/secrets/HOSTILE_TOKEN?scope=${encodeURIComponent(`server/${hostileServer}`)}`, { body: { value: "of-a-server-0815" } });
  await api("PUT", "/api/secrets/OTHERS_TOKEN?scope=tenant", { key: otherKey, body: { value: "of-another-tenant" } });
  await api("PUT", "/api/secrets/IRAS_TOKEN", { key: agentKey, body: { value: "of-ira-alone-0815", exec: true } });
  await keyFor("zoe", "developer", { name: hostileName, capabilities: ["mail"], threads: ["ci-*", "nightly"], act_for: true });
  await exec(thread, "true");
  await fetch(`${server}/api/threads/iras/exec`, { method: "POST", headers: { Authorization: `Bearer ${agentKey}`, "Content-Type": "application/json" }, body: JSON.stringify({ command: "echo hidden", env_secrets: { T: "IRAS_TOKEN" } }) });
});

after(async () => {
  await browser.close();
  await api("DELETE", `/api/threads/${thread}`);
  for (const name of ["CRM_TOKEN?scope=tenant", "EXEC_TOKEN?scope=tenant", `HOSTILE_TOKEN?scope=${encodeURIComponent(`server/${hostileServer}`)}`]) await api("DELETE", `/api/secrets/${name}`);
  await api("DELETE", "/api/secrets/OTHERS_TOKEN?scope=tenant", { key: otherKey });
  await forget(agentKey);
});

const nav = (page) => page.getByRole("navigation", { name: "Pages" });
const table = (page, name) => page.getByRole("table", { name });
const part = (page, name) => page.getByRole("region", { name, exact: true });
const row = (page, name, text) => table(page, name).getByRole("row").filter({ hasText: text });
const status = async (method, path, key, body) =>
  (await fetch(server + path, { method, headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" }, ...(body === undefined ? {} : { body: JSON.stringify(body) }) })).status;
const stored = (page) => page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, history.state, location.href]));

describe("secrets", () => {
  test("a value is sent once, and is in no address, page or storage afterwards; its last use is shown", () =>
    inside(async (page, { context }) => {
      const asked = [];
      context.on("request", (r) => asked.push([r.method(), r.url(), r.postData() ?? ""]));
      await page.getByRole("link", { name: "Store a secret" }).click();
      await page.getByLabel("Name").fill("MADE_HERE");
      await page.getByLabel("Who has it").selectOption("tenant");
      await page.getByText("Execs may have it in their environment").click();
      const area = page.getByLabel("Value", { exact: true });
      assert.equal(await area.evaluate((e) => getComputedStyle(e).webkitTextSecurity), "disc");
      await area.fill("short");
      await page.getByText(/8 bytes at least/).waitFor();
      await area.fill(`${value}\n`);
      assert.match(await area.inputValue(), /4711/, "the watch sees a value that is there");
      await page.getByRole("button", { name: "Store", exact: true }).click();
      await part(page, "One secret").getByText("never", { exact: true }).waitFor();
      const sent = asked.filter((r) => r.join(" ").includes("4711"));
      assert.deepEqual(sent.map(([method, url]) => [method, new URL(url).pathname]), [["PUT", "/api/secrets/MADE_HERE"]]);
      assert.deepEqual(JSON.parse(sent[0][2]), { value, exec: true });
      assert.doesNotMatch((await page.content()) + (await stored(page)), /4711/);
      assert.doesNotMatch(await page.evaluate(() => [...document.querySelectorAll("input, textarea")].map((e) => e.value).join()), /4711/);
      await exec(thread, "test -n \"$T\"", { env_secrets: { T: "MADE_HERE" } });
      await page.reload();
      await part(page, "One secret").getByText(/just now|s ago/).nth(1).waitFor(); // changed, and used
      await page.getByLabel("New value").fill("another-one-4712");
      await page.getByRole("button", { name: "Store the new value" }).click();
      await page.getByText("It is stored.").waitFor();
      assert.equal(await page.getByLabel("New value").inputValue(), "");
      assert.equal((await exec(thread, "echo $T | wc -c", { env_secrets: { T: "MADE_HERE" } })).stdout.trim(), "17");
      await page.getByRole("button", { name: "Delete…" }).click();
      await page.getByRole("alertdialog").getByText(/all of the tenant/).waitFor();
      await page.getByRole("alertdialog").getByRole("button", { name: "Delete" }).click();
      await row(page, "Secrets", "MADE_HERE").waitFor({ state: "detached" });
      assert.equal(await status("GET", "/api/secrets/MADE_HERE", adminKey), 404);
    }, { path: "/ui/secrets" }));

  test("a refused value is cleared, too, and repeated by nobody", () =>
    inside(async (page) => {
      await page.route("**/api/secrets/CRM_TOKEN**", (r) => (r.request().method() === "PUT" ? r.fulfill({ status: 403, contentType: "application/problem+json", body: '{"status":403,"code":"forbidden","title":"No","detail":"not today"}' }) : r.continue()));
      await row(page, "Secrets", "CRM_TOKEN").getByRole("link").click();
      await page.getByLabel("New value").fill(value);
      await page.getByRole("button", { name: "Store the new value" }).click();
      await page.getByRole("alert").getByText("not today").waitFor();
      assert.equal(await page.getByLabel("New value").inputValue(), "");
    }, { path: "/ui/secrets" }));

  test("a hostile name of a server is text", async () => {
    assert.deepEqual(await control(hostileServer), ["scope"]);
    await inside(async (page) => {
      await row(page, "Secrets", "HOSTILE_TOKEN").getByText("onerror").waitFor();
      await row(page, "Secrets", "HOSTILE_TOKEN").getByRole("link").click();
      await part(page, "One secret").getByText("onerror").first().waitFor();
      await page.getByRole("button", { name: "Delete…" }).click();
      await page.getByRole("alertdialog").getByText("onerror").first().waitFor();
      await page.getByRole("button", { name: "Cancel" }).click();
    }, { path: "/ui/secrets" });
  });

  test("an agent sees its own and those that execs may have, with the last use, and changes its own alone", () =>
    inside(async (page) => {
      const own = row(page, "Secrets", "IRAS_TOKEN");
      await own.getByText("you alone").waitFor();
      assert.doesNotMatch(await own.innerText(), /never/);
      await row(page, "Secrets", "EXEC_TOKEN").waitFor();
      assert.doesNotMatch(await page.content(), /CRM_TOKEN|HOSTILE_TOKEN|OTHERS_TOKEN/);
      assert.equal(await page.getByRole("button", { name: "Rotate the key…" }).count(), 0);
      await row(page, "Secrets", "EXEC_TOKEN").getByRole("link").click();
      await page.getByText("An administrator changes it.").waitFor();
      assert.equal(await page.getByRole("button", { name: "Delete…" }).count(), 0);
      await page.getByRole("link", { name: "Store a secret" }).click();
      await page.getByLabel("Name").waitFor();
      assert.equal(await page.getByLabel("Who has it").count(), 0);
      assert.equal(await status("PUT", "/api/secrets/EXEC_TOKEN?scope=tenant", agentKey, { value: "another-value" }), 403);
      assert.equal(await status("POST", "/api/secrets/rotate", agentKey, {}), 403);
    }, { key: agentKey, path: "/ui/secrets" }));

  test("an administrator of another tenant sees that tenant's alone, and rotates nothing", () =>
    inside(async (page) => {
      await row(page, "Secrets", "OTHERS_TOKEN").waitFor();
      assert.doesNotMatch(await page.content(), /CRM_TOKEN|EXEC_TOKEN|HOSTILE_TOKEN|IRAS_TOKEN/);
      assert.equal(await page.getByRole("button", { name: "Rotate the key…" }).count(), 0);
      assert.equal(await status("POST", "/api/secrets/rotate", otherKey, {}), 403);
    }, { key: otherKey, path: "/ui/secrets" }));

  test("an operator rotates the key after a question, and values stay", () =>
    inside(async (page) => {
      await page.getByRole("button", { name: "Rotate the key…" }).click();
      await page.getByRole("alertdialog").getByRole("button", { name: "Rotate" }).click();
      await page.getByText(/There is a new key\. [1-9][0-9]* values/).waitFor();
      assert.equal((await exec(thread, "echo $T | wc -c", { env_secrets: { T: "EXEC_TOKEN" } })).stdout.trim(), "18");
    }, { path: "/ui/secrets" }));

  test("an auditor, and a key for some threads, have none of these pages, and the server refuses them", async () => {
    for (const key of [auditorKey, ciKey]) {
      await inside(async (page) => {
        await nav(page).waitFor();
        for (const [label, path, what] of [["Secrets", "secrets", "The secrets cannot be listed"], ["Keys", "keys", "The keys cannot be listed"], ["Usage", "usage", "The usage cannot be shown"], ["Templates", "templates", "The templates cannot be listed"], ["Servers", "servers", "The servers cannot be listed"]]) {
          assert.equal(await nav(page).getByRole("link", { name: label, exact: true }).count(), 0, label);
          await page.goto(`${server}/ui/${path}`);
          await page.getByText(what).waitFor();
          assert.equal(await status("GET", `/api/${path}`, key), 403, path);
        }
        assert.doesNotMatch(await page.content(), /_TOKEN/);
      }, { key });
    }
  });
});

describe("keys", () => {
  test("a key is shown once, can be copied, works, and is gone when one leaves", () =>
    inside(async (page, { context }) => {
      await context.grantPermissions(["clipboard-read", "clipboard-write"], { origin: server });
      await page.getByRole("link", { name: "Make a key" }).click();
      await page.getByLabel("What it is for").fill("made in a test");
      await page.getByLabel("User", { exact: true }).fill("kim");
      await page.getByLabel("Role").selectOption("developer");
      await page.getByLabel("Only these threads").fill("ci-*, nightly");
      await page.getByLabel("Capabilities").fill("mail");
      await page.getByLabel("Expires").selectOption("7");
      await page.getByRole("button", { name: "Make the key" }).click();
      const secret = await page.getByLabel("The secret of the key").inputValue();
      assert.match(secret, /^sk_[0-9a-f]{64}$/);
      await page.getByRole("button", { name: "Copy" }).click();
      await page.getByText("It is in the clipboard.").waitFor();
      assert.equal(await page.evaluate(() => navigator.clipboard.readText()), secret);
      const who = await api("GET", "/api/whoami", { key: secret });
      assert.deepEqual([who.user, who.role, who.threads, who.capabilities], ["kim", "developer", ["ci-*", "nightly"], ["mail"]]);
      await page.getByRole("link", { name: "I have it" }).click();
      await part(page, "One key").getByText("nightly").waitFor();
      const left = async () => (await page.content()) + (await stored(page)) + (await page.evaluate(() => [...document.querySelectorAll("input")].map((e) => e.value).join()));
      assert.ok(!(await left()).includes(secret), "it is gone");
      await page.goBack();
      await page.getByRole("button", { name: "Make the key" }).waitFor();
      assert.ok(!(await left()).includes(secret), "it does not come back");
      assert.equal(await page.getByLabel("What it is for").inputValue(), "");
      await page.goForward();
      await part(page, "One key").getByText("just now", { exact: true }).first().waitFor();
      await page.getByRole("button", { name: "Revoke…" }).click();
      const asked = page.getByRole("alertdialog");
      await asked.getByText(/as kim with the role developer, for the threads ci-\*, nightly, are refused at once/).waitFor();
      await asked.getByRole("button", { name: "Revoke" }).click();
      await row(page, "Keys", "made in a test").waitFor({ state: "detached" });
      assert.equal(await status("GET", "/api/whoami", secret), 401);
    }, { path: "/ui/keys" }));

  test("a wrong key is refused in words, and none is made", () =>
    inside(async (page) => {
      await page.getByLabel("What it is for").fill("wrong");
      await page.getByLabel("User", { exact: true }).fill("no one");
      await page.getByRole("button", { name: "Make the key" }).click();
      await page.getByRole("alert").getByText(/use 1 to 128 of the characters/).waitFor();
      assert.equal(await page.getByLabel("The secret of the key").count(), 0);
    }, { path: "/ui/keys?add=true" }));

  test("a hostile name is text, its scopes are shown, and the address leads a colleague to the same key", async () => {
    assert.notDeepEqual(await control(hostileName), []);
    const { items } = await api("GET", "/api/keys");
    const id = items.find((k) => k.name === hostileName).id;
    await inside(async (page) => {
      await part(page, "One key").getByText("onerror").first().waitFor();
      await part(page, "One key").getByText("yes, with On-Behalf-Of").waitFor();
      for (const tag of ["ci-*", "nightly", "mail"]) await part(page, "One key").getByText(tag, { exact: true }).waitFor();
      await page.getByRole("button", { name: "Revoke…" }).click();
      await page.getByRole("alertdialog").getByText(/It acts for other users/).waitFor();
      await page.getByRole("alertdialog").getByText("onerror").first().waitFor();
      await page.keyboard.press("Escape");
      assert.equal(await row(page, "Keys", "zoe").count(), 1);
      assert.doesNotMatch(await page.content(), /nora/);
    }, { path: `/ui/keys?key=${id}&q=zoe` });
  });

  test("an agent has no such page; another tenant's administrator sees that tenant's keys alone", async () => {
    await inside(async (page) => {
      assert.equal(await nav(page).getByRole("link", { name: "Keys" }).count(), 0);
      await page.goto(`${server}/ui/keys`);
      await page.getByText("The keys cannot be listed").waitFor();
      assert.equal(await status("POST", "/api/keys", agentKey, { name: "x", user: "ira" }), 403);
    }, { key: agentKey, path: "/ui/threads" });
    await inside(async (page) => {
      await row(page, "Keys", "nora").waitFor();
      assert.doesNotMatch(await page.content(), /\bira\b|zoe|onerror/);
    }, { key: otherKey, path: "/ui/keys" });
  });
});

describe("usage", () => {
  before(async () => {
    for (let i = 0; i < 60; i++) {
      const { items } = await api("GET", "/api/usage?by=user");
      if ((items.find((u) => u.user === "ira")?.execs ?? 0) > 0) return;
      await new Promise((r) => setTimeout(r, 1000));
    }
    throw new Error("the exec of an agent is not counted");
  });

  test("numbers by day are plotted and in a table, by user lead to the user, and limits say how near they are", () =>
    inside(async (page) => {
      await part(page, "Limits").getByText(/Tool calls a day, of the user/).waitFor();
      await part(page, "Limits").getByRole("meter", { name: /Tool calls a day, of the user: [0-9,]+ of 100,000/ }).waitFor();
      await part(page, "Limits").getByText("at most 60,000").waitFor(); // a rate
      const execs = part(page, "Execs a day");
      await execs.locator("canvas").waitFor();
      await execs.getByText("As a table").click();
      const last = execs.getByRole("row").last();
      await last.waitFor();
      const day = await api("GET", `/api/usage?from=${new Date(Date.now() - 29 * 86_400_000).toISOString().slice(0, 10)}`);
      assert.equal(await execs.getByRole("row").count(), 31, "a row for each day");
      assert.ok(Number((await last.getByRole("cell").innerText()).replaceAll(",", "")) <= day.total.execs);
      await page.getByLabel("Span").selectOption("7");
      assert.equal(new URL(page.url()).searchParams.get("days"), "7");
      await page.getByRole("link", { name: "By user" }).click();
      await page.getByRole("link", { name: "ira", exact: true }).click();
      await page.getByText(/^Of the user/).waitFor();
      await part(page, "Execs a day").locator(".hint").getByText("In all: 1 ended").waitFor();
      await page.getByRole("link", { name: "By key" }).click();
      await page.getByRole("region", { name: "Usage by key" }).getByRole("link", { name: /^key_/ }).first().waitFor();
    }, { path: "/ui/usage" }));

  test("an agent sees what it used itself, and nothing of others", () =>
    inside(async (page) => {
      await part(page, "Execs a day").locator(".hint").getByText("In all: 1 ended").waitFor();
      assert.equal(await page.getByRole("navigation", { name: "Whose usage" }).count(), 0);
      assert.doesNotMatch(await page.content(), /zoe|\bkim\b/);
      assert.equal(await status("GET", "/api/usage?by=user", agentKey), 403);
    }, { key: agentKey, path: "/ui/usage?by=user&user=zoe" }));

  test("another tenant has used none of it", () =>
    inside(async (page) => {
      await page.getByRole("link", { name: "By user" }).click();
      await page.getByText("Nothing was used on these days").or(page.getByRole("region", { name: "Usage by user" })).first().waitFor();
      assert.doesNotMatch(await page.content(), /\bira\b|zoe/);
    }, { key: otherKey, path: "/ui/usage" }));
});

describe("templates", () => {
  test("what a template has, and what its image is made of, which can be saved", () =>
    inside(async (page) => {
      await row(page, "Templates", "base").getByRole("link").click();
      const about = part(page, "One template");
      await about.getByText("skerry/base:latest").waitFor();
      for (const text of ["none: tools are called by the server", "15 minutes", "2 cores", "runc"]) await about.getByText(text, { exact: true }).first().waitFor();
      await about.getByRole("link", { name: "Packages" }).click();
      await page.getByLabel("Find a package").fill("libc6", { timeout: 120_000 });
      await row(page, "Packages", /^deb\s*libc6/).first().waitFor();
      assert.equal(new URL(page.url()).searchParams.get("q"), "libc6");
      const coming = page.waitForEvent("download");
      await page.getByRole("button", { name: "Save as CycloneDX" }).click();
      const bom = JSON.parse(await readFile(await (await coming).path(), "utf8"));
      assert.equal(bom.bomFormat, "CycloneDX");
      assert.ok(bom.components.some((c) => c.purl?.startsWith("pkg:deb/debian/libc6@")), "libc6 is in the file");
    }, { path: "/ui/templates" }));

  test("what a hostile image says is text, and an image that says nothing is an error in words", async () => {
    assert.notDeepEqual(await control(attack("package")), []);
    await inside(async (page) => {
      const bom = { bomFormat: "CycloneDX", components: [{ type: "operating-system", name: attack("system") }, { type: "library", name: attack("package"), version: attack("version"), purl: "javascript:ran('purl')", licenses: [{ license: { name: attack("licence") } }] }] };
      await page.route("**/sbom", (r) => r.fulfill({ contentType: "application/vnd.cyclonedx+json", body: JSON.stringify(bom) }));
      await page.goto(`${server}/ui/templates?template=base&view=packages`);
      await row(page, "Packages", "onerror").waitFor();
      await page.unroute("**/sbom");
      await page.route("**/sbom", (r) => r.fulfill({ status: 503, contentType: "application/problem+json", body: '{"status":503,"code":"unavailable","title":"No","detail":"the image does not tell"}' }));
      await page.reload();
      await page.getByRole("alert").getByText("the image does not tell").waitFor();
    }, { path: "/ui/templates" });
  });

  test("an agent sees templates, and no path of the host", () =>
    inside(async (page) => {
      await row(page, "Templates", "base").getByRole("link").click();
      await part(page, "One template").getByText("Limits of a sandbox").waitFor();
      assert.doesNotMatch(await page.content(), /skerry\/base:latest/);
    }, { key: agentKey, path: "/ui/templates" }));
});

describe("servers", () => {
  test("an operator sees this server, and which one has a thread", () =>
    inside(async (page) => {
      const { items } = await api("GET", "/api/servers");
      assert.equal(items.length, 1);
      const list = page.getByRole("list", { name: "Servers" });
      await list.getByText(items[0].id).waitFor();
      await list.getByText("serving").waitFor();
      await list.getByText("answers you").waitFor();
      await exec(thread, "true");
      await page.getByLabel("Thread", { exact: true }).fill(thread);
      await page.getByRole("button", { name: "Find" }).click();
      await page.getByRole("status").getByText(items[0].id).waitFor();
      assert.equal(new URL(page.url()).searchParams.get("thread"), thread);
      await page.getByRole("link", { name: "Open the thread" }).waitFor();
      await page.getByLabel("Thread", { exact: true }).fill("iras");
      await page.getByLabel("Of the user").fill("ira");
      await page.keyboard.press("Enter");
      await page.getByRole("status").getByText("iras").waitFor();
      await page.getByRole("status").getByText(items[0].id).waitFor();
      await page.getByLabel("Of the user").fill("zoe");
      await page.keyboard.press("Enter");
      await page.getByText(/No server has the thread/).waitFor();
    }, { path: "/ui/servers" }));

  test("several servers: one that stops, one that does not answer, and the pools of all together", async () => {
    const report = (more) => ({ version: "1.2.3", draining: false, threads: 7, sandboxes: { running: 5, paused: 2 }, max_sandboxes: 10, execs: 3, queue: 1, pools: [{ template: "base", waiting: 2, starting: 1, target: 6 }], ...more });
    const at = { started_at: new Date(Date.now() - 3_600_000).toISOString(), seen_at: new Date().toISOString() };
    const items = [
      { id: "r1", this: true, state: "serving", slot: 1, address: "10.0.0.1:8080", peer_address: "10.0.0.1:7946", ...at, report: report({}) },
      { id: "r2", this: false, state: "draining", slot: 2, ...at, report: report({ draining: true, version: attack("version"), pools: [{ template: "base", waiting: 1, starting: 0, target: 6 }] }) },
      { id: "r3", this: false, state: "silent", slot: 3, started_at: at.started_at },
    ];
    await inside(async (page) => {
      await page.route("**/api/servers", (r) => r.fulfill({ json: { items } }));
      await page.goto(`${server}/ui/servers`);
      const one = (id) => page.getByRole("list", { name: "Servers" }).getByRole("listitem").filter({ has: page.getByRole("heading", { name: id, exact: true }) });
      await one("r1").getByRole("meter", { name: "Sandboxes: 7 of 10" }).waitFor();
      await one("r1").getByText("5 running, 2 paused").waitFor();
      await one("r1").getByText("10.0.0.1:7946").waitFor();
      await one("r2").getByText("It takes no new work").waitFor();
      await one("r2").getByText("onerror").waitFor();
      await one("r3").getByText("does not answer").waitFor();
      await page.route("**/api/templates", async (r) => {
        const answer = await (await r.fetch()).json();
        await r.fulfill({ json: { items: answer.items.map((t) => (t.name === "base" ? { ...t, pool: { target: 6, min: 2, burst: 2, max_age_s: 3600 } } : t)) } });
      });
      await page.goto(`${server}/ui/templates?template=base`);
      await row(page, "Templates", "base").getByText("3 of 6").waitFor();
      await part(page, "One template").getByText("1 hour").waitFor();
    });
  });

  test("nobody else has the page, and the server refuses them", async () => {
    for (const key of [agentKey, otherKey]) {
      await inside(async (page) => {
        assert.equal(await nav(page).getByRole("link", { name: "Servers" }).count(), 0);
        await page.goto(`${server}/ui/servers?thread=${thread}`);
        await page.getByText("The servers cannot be listed").waitFor();
        assert.equal(await status("GET", `/api/servers?thread=${thread}`, key), 403);
      }, { key, path: "/ui/threads" });
    }
  });
});

test("these pages work by keyboard: the tab key reaches what they do, and Escape leaves a question", () =>
  inside(async (page) => {
    const reach = async (locator) => {
      for (let i = 0; i < 80; i++) {
        if (await locator.evaluate((e) => e === document.activeElement)) return;
        await page.keyboard.press("Tab");
      }
      assert.fail(`the tab key does not reach ${locator}`);
    };
    await reach(page.getByRole("link", { name: "CRM_TOKEN" }));
    await page.keyboard.press("Enter");
    await reach(page.getByRole("button", { name: "Delete…" }));
    await page.keyboard.press("Enter");
    await page.getByRole("alertdialog").waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("alertdialog").waitFor({ state: "detached" });
    await row(page, "Secrets", "CRM_TOKEN").waitFor();
    await page.goto(`${server}/ui/usage`);
    const plot = page.getByRole("group", { name: "Execs a day" });
    await plot.focus();
    await page.keyboard.press("End");
    await part(page, "Execs a day").getByRole("status").getByText(/ended/).waitFor();
  }, { path: "/ui/secrets" }));

test("axe finds nothing, and nothing is wider than the page", async () => {
  const { items } = await api("GET", "/api/keys");
  const id = items.find((k) => k.name === hostileName).id;
  const found = await looksGood({
    secrets: ["/ui/secrets", (p) => row(p, "Secrets", "CRM_TOKEN").waitFor()],
    secret: ["/ui/secrets?name=CRM_TOKEN&scope=tenant", (p) => p.getByLabel("New value").waitFor()],
    "a new secret": ["/ui/secrets?add=true", (p) => p.getByLabel("Value", { exact: true }).waitFor()],
    keys: ["/ui/keys", (p) => row(p, "Keys", "ira").first().waitFor()],
    key: [`/ui/keys?key=${id}`, (p) => part(p, "One key").getByText("nightly").waitFor()],
    "a new key": ["/ui/keys?add=true", (p) => p.getByLabel("Capabilities").waitFor()],
    usage: ["/ui/usage", (p) => part(p, "Execs a day").locator("canvas").waitFor()],
    "usage by user": ["/ui/usage?by=user", (p) => p.getByRole("region", { name: "Usage by user" }).waitFor()],
    templates: ["/ui/templates?template=base", (p) => p.getByText("Limits of a sandbox").waitFor()],
    packages: ["/ui/templates?template=base&view=packages", (p) => p.getByLabel("Find a package").waitFor({ timeout: 120_000 })],
    servers: [`/ui/servers?thread=${thread}`, (p) => p.getByRole("list", { name: "Servers" }).getByText("serving").waitFor()],
  });
  assert.deepEqual(found, []);
});
