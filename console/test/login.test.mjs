// Logins at an identity provider: a real one (oidc-provider), and a server that takes its tokens. test.sh starts both.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, afterEach, describe, test } from "node:test";
import { attack, axe, browser, control, issuer, loginServer, open } from "./browser.mjs";

const provider = "Sign-on of Acme";
const mode = async (change) => assert.ok((await fetch(`${issuer}/test`, { method: "POST", body: JSON.stringify(change) })).ok);

after(() => browser.close());
afterEach(() => mode({ ttl: 3600, refresh: true, away: false }));

/** A page of the console, which never asks the provider for anything by itself: a person goes there. */
async function visit(run, { path = "/ui/", ...options } = {}) {
  const it = await open(options);
  const redeemed = [];
  const fetched = [];
  it.context.on("request", (r) => {
    if (r.url().endsWith("/api/login/oidc")) redeemed.push(r.postDataJSON());
    if (r.url().startsWith(issuer) && !r.isNavigationRequest() && !r.url().endsWith("/favicon.ico")) fetched.push(r.url());
  });
  try {
    await it.page.goto(loginServer + path);
    await run(it.page, { ...it, redeemed });
    assert.deepEqual(fetched, []);
    assert.deepEqual(it.seen.elsewhere.filter((u) => !u.startsWith(`${issuer}/`)), []);
    assert.deepEqual([it.seen.ran, it.seen.violations, it.seen.errors], [[], [], []]);
  } finally {
    await it.close();
  }
}

const leave = (page) => page.getByRole("button", { name: `Log in with ${provider}` }).click();

async function say(page, name, button = "Continue") {
  await page.getByLabel("Name").fill(name);
  await page.getByRole("button", { name: button }).click();
}

async function loginAs(page, name) {
  await leave(page);
  await say(page, name);
}

const nav = (page) => page.getByRole("navigation", { name: "Pages" }).getByRole("link");
const stored = (page) => page.evaluate(() => JSON.stringify({ ...sessionStorage, ...localStorage, cookie: document.cookie }));

describe("a login at an identity provider", () => {
  for (const [name, role, first] of [["ann", "agent", "Threads"], ["root", "operator", "Overview"], ["vera", "auditor", "Audit"]]) {
    test(`${name} is ${role} by the claims`, () =>
      visit(async (page, { context, redeemed }) => {
        const addresses = [];
        context.on("request", (r) => addresses.push(r.url()));
        await loginAs(page, name);
        await page.locator(".who").getByText(`${name} ${role}`).waitFor();
        assert.equal((await nav(page).allInnerTexts())[0], first);
        assert.equal(await nav(page).filter({ hasText: "Policy" }).count(), role === "operator" ? 1 : 0);
        // Neither the code nor a token stays anywhere: not in the address, not in storage, not in the log.
        assert.equal(redeemed.length, 1);
        assert.match(redeemed[0].code_verifier, /^[\w-]{43}$/);
        const { code } = redeemed[0];
        assert.ok(!page.url().includes(code) && !(await stored(page)).includes("ey"), page.url());
        assert.equal(await page.evaluate(() => sessionStorage.getItem("skerry.login")), null);
        const log = await readFile(process.env.SKERRY_LOGIN_LOG, "utf8");
        assert.ok(!log.includes(code));
        const begun = new URL(addresses.find((a) => a.startsWith(`${issuer}/auth?`)));
        assert.equal(begun.searchParams.get("code_challenge_method"), "S256");
        assert.ok(!addresses.some((a) => a.includes(redeemed[0].code_verifier)));
        assert.notEqual(begun.searchParams.get("state"), begun.searchParams.get("nonce"));
        // Loaded again, the page has forgotten it.
        await page.reload();
        await page.getByLabel("API key").waitFor();
      }));
  }

  test("it leads to where the link led, stays for the tab when asked, and goes with a logout", () =>
    visit(async (page) => {
      await page.getByText("Keep for this tab").click();
      await loginAs(page, "ann");
      await page.getByRole("heading", { level: 1 }).getByText("Threads").waitFor();
      assert.equal(new URL(page.url()).pathname + new URL(page.url()).search, "/ui/threads?q=abc");
      await page.reload();
      await page.getByRole("button", { name: "Log out" }).waitFor();
      await page.getByRole("button", { name: "Log out" }).click();
      await page.getByLabel("API key").waitFor();
      assert.ok(!(await stored(page)).includes("ey"));
    }, { path: "/ui/threads?q=abc" }));

  test("a key still does, beside it", () =>
    visit(async (page) => {
      await page.getByLabel("API key").fill(process.env.SKERRY_LOGIN_KEY);
      await page.getByRole("button", { name: "Log in", exact: true }).click();
      await page.getByRole("button", { name: "Log out" }).waitFor();
    }));
});

describe("an answer that does not fit is refused in words", () => {
  const refused = async (page, text) => {
    await page.getByRole("alert").getByText(text).waitFor();
    assert.equal(await page.getByRole("button", { name: "Log out" }).count(), 0);
  };

  test("one of another state, and of no login at all", () =>
    visit(async (page, { redeemed }) => {
      await leave(page);
      await page.getByLabel("Name").waitFor();
      await page.goto(`${loginServer}/ui/login/done?code=123456&state=of-somebody-else`);
      await refused(page, "for another login");
      await page.goto(`${loginServer}/ui/login/done?code=123456&state=x`);
      await refused(page, "No login of this tab waits");
      assert.deepEqual(redeemed, []);
      assert.equal(page.url(), `${loginServer}/ui/login/done`);
    }));

  test("one of another provider", () =>
    visit(async (page, { redeemed }) => {
      await leave(page);
      await page.getByLabel("Name").waitFor();
      const { state } = await page.goto(`${loginServer}/ui/login`).then(() => page.evaluate(() => JSON.parse(sessionStorage.getItem("skerry.login"))));
      await page.goto(`${loginServer}/ui/login/done?code=1&state=${state}&iss=https%3A%2F%2Fevil.example`);
      await refused(page, "from another provider");
      assert.deepEqual(redeemed, []);
    }));

  test("a code is good once", () =>
    visit(async (page, { redeemed }) => {
      const returns = [];
      page.on("framenavigated", (f) => returns.push(f.url()));
      await loginAs(page, "ann");
      await page.getByRole("button", { name: "Log out" }).waitFor();
      await page.goto(returns.find((u) => u.includes("code=")));
      await refused(page, "No login of this tab waits");
      const again = await fetch(`${loginServer}/api/login/oidc`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(redeemed[0]) });
      assert.equal(again.status, 401);
      assert.match((await again.json()).detail, /refused the login: invalid_grant/);
    }));

  test("what the provider says is text, and runs nothing", async () => {
    const hostile = attack("provider");
    assert.notDeepEqual(await control(hostile), []);
    await visit(async (page) => {
      await leave(page);
      await say(page, hostile, "Refuse");
      await refused(page, `${provider} did not log you in: access_denied (${hostile})`);
      assert.deepEqual(await axe(page), []);
      await page.getByRole("link", { name: "Log in again" }).click();
      await page.getByLabel("API key").waitFor();
    });
  });

  test("a user without a role here", () =>
    visit(async (page) => {
      await loginAs(page, "nobody");
      await refused(page, "it has no role for this server");
    }));

  test("a provider that went away meanwhile, and one that never answered", () =>
    visit(async (page) => {
      await leave(page);
      await mode({ away: true });
      await say(page, "ann");
      await refused(page, `${provider} does not answer`);
      await page.route("**/api/login", async (r) => {
        const answer = await (await r.fetch()).json();
        delete answer.issuers[0].authorization_endpoint;
        await r.fulfill({ json: answer });
      });
      await page.goto(`${loginServer}/ui/login`);
      await page.getByRole("status").getByText(`${provider} does not answer the server now`).waitFor();
      assert.ok(await page.getByRole("button", { name: `Log in with ${provider}` }).isDisabled());
    }));

  test("no login leads to another site", async () => {
    for (const next of ["//evil.example/x", "/\\evil.example", "javascript:ran('next')"]) {
      await visit(async (page) => {
        await loginAs(page, "ann");
        await page.getByRole("button", { name: "Log out" }).waitFor();
        assert.equal(new URL(page.url()).origin, loginServer);
      }, { path: `/ui/login?next=${encodeURIComponent(next)}` });
    }
  });
});

describe("a token ends", () => {
  test("without a refresh token the page asks for a login, and goes on where it was", async () => {
    await mode({ ttl: 5, refresh: false });
    await visit(async (page) => {
      await loginAs(page, "ann");
      await page.getByRole("button", { name: "Log out" }).waitFor();
      await page.getByText("Your login has ended").waitFor();
      await mode({ ttl: 3600 });
      await loginAs(page, "ann");
      await page.getByRole("button", { name: "Log out" }).waitFor();
      assert.equal(new URL(page.url()).pathname, "/ui/threads");
    }, { path: "/ui/threads" });
  });

  test("a token that is kept for the tab ends, too, after the page was loaded again", async () => {
    await mode({ ttl: 8, refresh: false });
    await visit(async (page) => {
      await page.getByText("Keep for this tab").click();
      await loginAs(page, "ann");
      await page.getByRole("button", { name: "Log out" }).waitFor();
      await page.reload();
      await page.getByRole("button", { name: "Log out" }).waitFor();
      await page.getByText("Your login has ended").waitFor();
      assert.ok(!(await stored(page)).includes("ey"));
    }, { path: "/ui/threads" });
  });

  test("with one the page goes on, and forgets both with a logout", async () => {
    await mode({ ttl: 5 });
    await visit(async (page, { redeemed }) => {
      await loginAs(page, "root");
      await page.getByRole("button", { name: "Log out" }).waitFor();
      for (const end = Date.now() + 30_000; redeemed.filter((r) => r.refresh_token).length < 2; ) {
        assert.ok(Date.now() < end, "no token was refreshed");
        await page.waitForTimeout(500);
      }
      await mode({ ttl: 3600 });
      await page.waitForTimeout(6_000);
      assert.equal(await page.getByText("Your login has ended").count(), 0);
      await page.getByRole("link", { name: "Threads" }).click();
      await page.getByRole("heading", { level: 1 }).getByText("Threads").waitFor();
      assert.ok(!(await stored(page)).includes("ey"));
      await page.getByRole("button", { name: "Log out" }).click();
      await page.getByLabel("API key").waitFor();
      const before = redeemed.length;
      await page.waitForTimeout(1_000);
      assert.equal(redeemed.length, before);
    }, { path: "/ui/overview" });
  });

  test("one that ends on its way to the server is replaced", async () => {
    await mode({ ttl: 5 });
    await visit(async (page, { redeemed }) => {
      await page.clock.setFixedTime(new Date()); // so the page never thinks that its token is about to end
      await loginAs(page, "ann");
      await page.getByRole("button", { name: "Log out" }).waitFor();
      await page.waitForTimeout(6_000);
      await mode({ ttl: 3600 });
      await page.getByLabel("Open a thread by its id").fill("not-here");
      await page.getByRole("button", { name: "Open", exact: true }).click();
      await page.getByRole("heading", { level: 1 }).getByText("not-here").waitFor();
      await page.getByRole("button", { name: "Log out" }).waitFor();
      assert.equal(await page.getByText("Your login has ended").count(), 0);
      assert.ok(redeemed.some((r) => r.refresh_token), "no token was refreshed");
    }, { path: "/ui/threads" });
  });
});

describe("what goes on when a token ends", () => {
  const lines = 16;
  const printing = `for i in $(seq ${lines}); do echo line-$i-end; sleep 1; done`;
  const printed = async (text) => assert.deepEqual([...(await text.innerText()).matchAll(/line-(\d+)-end/g)].map((m) => Number(m[1])), Array.from({ length: lines }, (_, i) => i + 1));

  /** A thread of ann, in a page whose tokens are good for some seconds. */
  async function watched(thread, command, run) {
    await mode({ ttl: 8 });
    await visit(async (page, { context, redeemed }) => {
      const token = context.waitForEvent("response", (r) => r.url().endsWith("/api/login/oidc")).then((r) => r.json());
      await loginAs(page, "ann");
      const headers = { Authorization: `Bearer ${(await token).token}`, "Content-Type": "application/json" };
      const exec = (command) => fetch(`${loginServer}/api/threads/${thread}/exec`, { method: "POST", headers, body: JSON.stringify({ command }) });
      assert.equal((await exec("true")).status, 200);
      const ended = command === undefined ? undefined : exec(command).catch(() => undefined); // its token ends before it does
      await page.getByLabel("Open a thread by its id").fill(thread);
      await page.getByRole("button", { name: "Open", exact: true }).click();
      await run(page);
      assert.ok(redeemed.some((r) => r.refresh_token), "no token ended meanwhile");
      await ended;
      await mode({ ttl: 3600 });
    }, { path: "/ui/threads" });
  }

  test("a terminal does, and shows each line once", () =>
    watched("login-terminal", undefined, async (page) => {
      await page.getByRole("link", { name: "Terminal", exact: true }).click();
      await page.getByRole("button", { name: "Start a terminal" }).click();
      const screen = page.locator(".xterm-rows");
      await screen.getByText("$").first().waitFor();
      await page.keyboard.type(`${printing}\n`);
      await screen.getByText(`line-${lines}-end`).waitFor({ timeout: 60_000 });
      await printed(screen);
      assert.equal(await page.getByText("The terminal cannot be joined").count(), 0);
    }));

  test("the output of an exec does, and has each line once", () =>
    watched("login-output", printing, async (page) => {
      await page.getByRole("link", { name: /line-\$i-end/ }).click();
      const output = page.getByRole("region", { name: /^Output of the exec/ });
      await output.getByText(`line-${lines}-end`).waitFor({ timeout: 60_000 });
      await printed(output);
    }));
});

test("axe finds nothing on the page of the login", async () => {
  for (const colorScheme of ["light", "dark"]) {
    for (const width of [1280, 390]) {
      await visit(async (page) => {
        await page.getByRole("button", { name: `Log in with ${provider}` }).waitFor();
        assert.deepEqual(await axe(page), [], `${colorScheme}, ${width} px`);
        assert.ok((await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)) <= 0);
      }, { path: "/ui/login", colorScheme, viewport: { width, height: 844 } });
    }
  }
});
