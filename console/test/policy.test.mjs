// What the page of the policy promises: rules are tried on past calls before they count, and nobody overwrites what another one wrote.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { adminKey, api, attack, browser, control, exec, forget, inside, keyFor, looksGood, server } from "./browser.mjs";

const thread = "policy-main";
const otherKey = process.env.SKERRY_OTHER_KEY; // the administrator of another tenant
const nothing = "version: 1\ndefault: allow\n";
let agentKey;

before(async () => {
  agentKey = await keyFor("pia", "agent");
  await exec(thread, `echo past '${attack("policy")}' >/dev/null`);
  await exec(thread, "true");
});

after(async () => {
  await browser.close();
  await api("DELETE", `/api/threads/${thread}`);
  await api("PUT", "/api/policy?scope=tenant", { key: otherKey, body: { text: "" } });
  await forget(agentKey);
});

const rules = (page) => page.getByRole("textbox", { name: /^Rules of/ });
const table = (page) => page.getByRole("table", { name: "Calls that would be decided otherwise" });

describe("policy", () => {
  test("a change is tried on past calls, which are shown as text, and nothing counts before it is saved", async () => {
    assert.notDeepEqual(await control(attack("policy")), []);
    await inside(async (page) => {
      const before = await rules(page).inputValue();
      assert.match(before, /ask-first/);
      await rules(page).fill(`${before}  - {id: no-past, effect: deny, match: {kind: exec}, when: 'args.?command.orValue("").contains("echo past")'}\n`);
      await page.getByRole("region", { name: "What you change" }).getByText("no-past").waitFor();
      await page.getByRole("link", { name: "Try the change on past calls" }).click();
      const row = table(page).getByRole("row").filter({ hasText: "echo past" }).first();
      await row.getByText("deny").waitFor();
      await row.getByText("no-past").waitFor();
      assert.equal(await table(page).getByRole("row").filter({ hasText: /^true/ }).count(), 0);
      assert.equal(new URL(page.url()).searchParams.get("view"), "past");
      await exec(thread, "echo past nothing");
    }, { path: "/ui/policy" });
    assert.doesNotMatch((await api("GET", "/api/policy?scope=server")).text, /no-past/);
  });

  test("wrong rules are refused with the line, on the page and by the try", () =>
    inside(async (page) => {
      await rules(page).fill(`${nothing}rules:\n  - {id: x, effect: sometimes}\n`);
      await page.getByRole("button", { name: "Save the rules" }).click();
      await page.getByRole("alert").getByText(/line 4/).waitFor();
      await page.getByRole("link", { name: "Try the change on past calls" }).click();
      await page.getByRole("alert").getByText(/line 4/).waitFor();
    }, { path: "/ui/policy?scope=tenant", key: otherKey }));

  test("a tenant's administrator saves rules, and overwrites none that were changed meanwhile", () =>
    inside(async (page) => {
      assert.equal(await page.getByLabel("Whose rules").count(), 0);
      await rules(page).fill(nothing);
      await page.getByRole("button", { name: "Save the rules" }).click();
      await page.getByText("a file").waitFor();
      await api("PUT", "/api/policy?scope=tenant", { key: otherKey, body: { text: `${nothing}# of a colleague\n` } });
      await rules(page).fill(`${nothing}# mine\n`);
      await page.getByRole("button", { name: "Save the rules" }).click();
      await page.getByText("Somebody else changed the rules meanwhile").waitFor();
      assert.match((await api("GET", "/api/policy?scope=tenant", { key: otherKey })).text, /of a colleague/);
      await page.getByRole("button", { name: "Load theirs" }).click();
      await page.waitForFunction(() => document.querySelector("textarea").value.includes("of a colleague"));
    }, { path: "/ui/policy", key: otherKey }));

  test("another tenant has none of these calls, and the server refuses it the server's rules", () =>
    inside(async (page) => {
      await page.getByText(/^0 calls$/).waitFor();
      await page.goto(`${server}/ui/policy?scope=server`);
      await page.getByText("The rules cannot be shown").waitFor();
      assert.ok(!(await page.content()).includes("ask-first"));
    }, { path: "/ui/policy?view=past", key: otherKey }));

  test("an agent has no such page, and is refused by the server", () =>
    inside(async (page) => {
      await page.getByRole("link", { name: "Threads", exact: true }).waitFor();
      assert.equal(await page.getByRole("link", { name: "Policy" }).count(), 0);
      await page.goto(`${server}/ui/policy`);
      await page.getByText("The rules cannot be shown").waitFor();
    }, { key: agentKey, path: "/ui/threads" }));

  test("axe finds nothing, and nothing is wider than the page", async () => {
    const found = await looksGood({
      rules: ["/ui/policy", (p) => rules(p).waitFor()],
      past: ["/ui/policy?view=past", (p) => p.getByText(/calls$/).first().waitFor()],
    });
    assert.deepEqual(found, []);
  });
});
