// What the console promises, in a real browser, against a real server with real sandboxes. test.sh starts both.
import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { adminKey, api, axe, browser, exec, keyFor, login, open, openServer, put, server } from "./browser.mjs";

const thread = "console-main";
const hostile = "console-hostile";
let agentKey, strangerKey, auditorKey, ciKey;

before(async () => {
  [agentKey, strangerKey, auditorKey, ciKey] = await Promise.all([keyFor("ann", "agent"), keyFor("bob", "agent"), keyFor("aud", "auditor"), keyFor("ci", "agent", { threads: ["ci-*", "nightly"] })]);
  await exec(thread, "echo to stdout; echo to stderr >&2; echo '# Notes' > /mnt/user-data/workspace/notes.md; exit 3");
  await api("PUT", `/api/threads/${thread}/sandbox`, { body: { labels: { team: "search" } } });
  await fetch(`${server}/api/threads/anns/exec`, { method: "POST", headers: { Authorization: `Bearer ${agentKey}`, "Content-Type": "application/json" }, body: '{"command":"true"}' });
});

after(async () => {
  await browser.close();
  await api("DELETE", "/api/threads/anns", { key: agentKey }); // test.sh sees the threads of its own user alone
});

/** A page that is logged in. What it did that no page may do fails the test at its end. */
async function inside(run, { key = adminKey, path = "/ui/", ...options } = {}) {
  const it = await open(options);
  try {
    await login(it.page, key, path);
    await run(it.page, it);
    assert.deepEqual(it.seen, { ran: [], elsewhere: [], violations: [], errors: [] });
  } finally {
    await it.close();
  }
}

const head = (page) => page.getByRole("heading", { level: 1 });
const rows = (page, name) => page.getByRole("table", { name }).getByRole("row");
const state = (page) => page.locator(".facts .state").first();

describe("login", () => {
  test("a wrong key is refused in words, a right one leads to where the link led", async () => {
    const { page, seen, close } = await open();
    await page.goto(`${server}/ui/threads/${thread}/files?path=%2Fmnt%2Fuser-data%2Fworkspace%2Fnotes.md`);
    await page.getByLabel("API key").fill("sk_wrong");
    await page.getByRole("button", { name: "Log in" }).click();
    await page.getByText("The server does not know this key").waitFor();
    await page.getByLabel("API key").fill(adminKey);
    await page.getByRole("button", { name: "Log in" }).click();
    await page.getByText("# Notes").waitFor();
    assert.equal(new URL(page.url()).pathname, `/ui/threads/${thread}/files`);
    assert.deepEqual(seen.violations, []);
    await close();
  });

  test("the key is in memory alone, or in this tab's storage when asked for; it is in no address and no log", async () => {
    const { page, context, close } = await open();
    const addresses = [];
    context.on("request", (r) => addresses.push(r.url()));
    await login(page, adminKey, "/ui/threads", false);
    const stored = () => page.evaluate(() => JSON.stringify({ ...sessionStorage, ...localStorage, cookie: document.cookie }));
    assert.ok(!(await stored()).includes("sk_"));
    await page.reload();
    await page.getByLabel("API key").waitFor();
    await login(page, adminKey, "/ui/threads", true);
    assert.ok((await stored()).includes(adminKey));
    await page.reload();
    await head(page).getByText("Threads").waitFor();
    await page.getByRole("button", { name: "Log out" }).click();
    await page.getByLabel("API key").waitFor();
    assert.ok(!(await stored()).includes("sk_"));
    assert.ok(addresses.length > 10 && addresses.every((a) => !a.includes("sk_")));
    assert.ok(!(await readFile(process.env.SKERRY_LOG, "utf8")).includes(adminKey));
    await close();
  });

  test("a key that is revoked leads to the login, and back", async () => {
    const made = await api("POST", "/api/keys", { body: { name: "short", user: "local", role: "developer" } });
    const { page, close } = await open();
    await login(page, made.secret, `/ui/threads/${thread}`);
    await state(page).waitFor();
    await api("DELETE", `/api/keys/${made.id}`);
    await page.getByText("Your key is not valid any more").waitFor();
    await page.getByLabel("API key").fill(adminKey);
    await page.getByRole("button", { name: "Log in" }).click();
    await head(page).getByText(thread).waitFor();
    await close();
  });

  test("a server without keys wants no login", async () => {
    const { page, close } = await open();
    await page.goto(`${openServer}/`);
    await page.getByRole("heading", { name: "Overview" }).waitFor();
    assert.equal(new URL(page.url()).pathname, "/ui/overview");
    assert.equal(await page.getByRole("button", { name: "Log out" }).count(), 0);
    await close();
  });

  test("no login leads to another site", async () => {
    for (const next of ["//evil.example/x", "https://evil.example", "/\\evil.example", "javascript:ran('next')"]) {
      const { page, seen, close } = await open();
      await login(page, adminKey, `/ui/login?next=${encodeURIComponent(next)}`);
      assert.equal(new URL(page.url()).origin, server);
      assert.deepEqual([seen.elsewhere, seen.ran], [[], []]);
      await close();
    }
  });
});

describe("roles", () => {
  test("a stranger sees neither the thread nor its list", () =>
    inside(async (page) => {
      await page.getByText("There is no thread yet").waitFor();
      await page.goto(`${server}/ui/threads/${thread}`);
      await page.getByText("You have no thread of this id").waitFor();
      assert.equal(await page.getByRole("button", { name: "Pause" }).count(), 0);
    }, { key: strangerKey, path: "/ui/threads" }));

  test("an agent sees its own threads", () =>
    inside(async (page) => {
      await page.getByRole("link", { name: "anns" }).waitFor();
      assert.equal(await rows(page, "Threads").count(), 2);
    }, { key: agentKey }));

  test("an auditor sees the audit log, and no entry that it may not read", () =>
    inside(async (page) => {
      await head(page).getByText("Audit").waitFor();
      assert.deepEqual(await page.getByRole("navigation", { name: "Pages" }).getByRole("link").allInnerTexts(), ["Audit"]);
    }, { key: auditorKey }));

  test("a key of some threads names them", () =>
    inside(async (page) => {
      await page.getByRole("link", { name: "nightly" }).waitFor();
      await page.getByText("those that begin with ci-").waitFor();
    }, { key: ciKey }));
});

describe("threads", () => {
  test("filters are in the address, which shows a colleague the same", () =>
    inside(async (page) => {
      await page.getByLabel("State of the sandbox").selectOption("running");
      await page.getByLabel("Filter by label").fill("team=search");
      await page.keyboard.press("Enter");
      await page.getByRole("status").getByText(/^1 of \d+ threads$/).waitFor();
      await page.getByRole("link", { name: thread }).waitFor();
      const { page: other, close } = await open();
      await login(other, adminKey, new URL(page.url()).pathname + new URL(page.url()).search);
      await other.getByRole("button", { name: "Remove the filter team=search" }).waitFor();
      assert.equal(await other.getByLabel("State of the sandbox").inputValue(), "running");
      await other.getByLabel("State of the sandbox").selectOption("lost");
      await other.getByText("No thread fits these filters").waitFor();
      await close();
    }, { path: "/ui/threads" }));

  test("of many threads, only those in sight are in the page", async () => {
    const key = await keyFor("many", "agent");
    await Promise.all(Array.from({ length: 8 }, async (_, lane) => {
      for (let i = lane; i < 460; i += 8) await put(`t-${String(i).padStart(4, "0")}`, "/mnt/user-data/workspace/a", "x", key);
    }));
    await inside(async (page) => {
      await page.getByText("460 threads").waitFor();
      assert.ok((await rows(page, "Threads").count()) < 60);
      const grid = page.getByRole("table", { name: "Threads" });
      for (let i = 0; i < 3; i++) {
        await grid.evaluate((g) => g.scrollTo(0, g.scrollHeight));
        await page.waitForTimeout(700);
      }
      await page.getByRole("link", { name: "t-0000" }).waitFor();
      assert.ok((await rows(page, "Threads").count()) < 60);
    }, { key });
  });
});

describe("one thread", () => {
  test("pause, resume, hibernate, and end with a question", () =>
    inside(async (page) => {
      const press = (name) => page.getByRole("button", { name, exact: true }).click();
      await state(page).getByText("running").waitFor();
      await press("Pause");
      await state(page).getByText("paused").waitFor();
      await press("Resume");
      await state(page).getByText("running").waitFor();
      await press("Hibernate");
      await state(page).getByText("hibernated").waitFor();
      await press("Resume");
      await state(page).getByText("running").waitFor();
      await press("End sandbox…");
      await page.getByRole("alertdialog").getByRole("button", { name: "Cancel" }).click();
      assert.equal((await api("GET", `/api/threads/${thread}`)).sandbox.state, "running");
      await press("End sandbox…");
      await page.getByRole("alertdialog").getByRole("button", { name: "End sandbox" }).click();
      await page.getByText("none; the next exec starts one").waitFor();
      assert.equal((await api("GET", `/api/threads/${thread}`)).sandbox, undefined);
      await press("Start");
      await state(page).getByText("running").waitFor();
    }, { path: `/ui/threads/${thread}` }));

  test("an exec shows its end and both of its outputs; its address is its own", () =>
    inside(async (page) => {
      const { exec_id } = await exec(thread, "echo to stdout; echo to stderr >&2; : of this test; exit 3");
      await page.getByRole("link", { name: /of this test/ }).click();
      await page.locator(".output .stdout", { hasText: "to stdout" }).waitFor();
      await page.locator(".output .stderr", { hasText: "to stderr" }).waitFor();
      await page.locator(".split-detail").getByText("exit 3", { exact: true }).waitFor();
      assert.equal(new URL(page.url()).searchParams.get("exec"), exec_id);
      await page.reload();
      await page.locator(".output .stdout", { hasText: "to stdout" }).waitFor();
    }, { path: `/ui/threads/${thread}` }));

  test("output comes while the exec runs, and so does its end", () =>
    inside(async (page) => {
      const { exec_id } = await exec(thread, "echo first; while [ ! -e /tmp/go ]; do sleep 0.1; done; rm /tmp/go; echo second", { background: true });
      await page.getByRole("link", { name: /echo first/ }).first().click();
      const output = page.locator(".output");
      await output.getByText("first").waitFor();
      await page.locator(".split-detail").getByText("running").waitFor();
      assert.ok(!(await output.innerText()).includes("second"));
      await exec(thread, "touch /tmp/go");
      await output.getByText("second").waitFor();
      await page.locator(".split-detail").getByText("exit 0").waitFor();
      assert.equal((await api("GET", `/api/threads/${thread}/execs/${exec_id}`)).status, "exited");
    }, { path: `/ui/threads/${thread}` }));

  test("an exec is killed", () =>
    inside(async (page) => {
      await exec(thread, "sleep 300", { background: true });
      await page.getByRole("link", { name: "sleep 300" }).first().click();
      await page.getByRole("button", { name: "Kill" }).click();
      await page.locator(".split-detail").getByText("killed").waitFor();
    }, { path: `/ui/threads/${thread}` }));
});

const screen = (page) => page.locator(".xterm-rows");
async function startTerminal(page) {
  await page.getByRole("button", { name: /Start a/ }).click();
  await screen(page).getByText("$").first().waitFor();
}

describe("terminal", () => {
  test("it types and shows, keeps colours, is joined again after a reload, and ends", () =>
    inside(async (page) => {
      await startTerminal(page);
      await page.keyboard.type("echo $((6 * 7))-seen; printf '\\033[38;2;200;50;50mcoloured\\033[0m\\n'\n");
      await screen(page).getByText("42-seen").waitFor();
      const coloured = screen(page).locator("span", { hasText: /^coloured$/ }).first();
      await coloured.waitFor();
      assert.notEqual(await coloured.evaluate((e) => getComputedStyle(e).color), await screen(page).evaluate((e) => getComputedStyle(e).color));
      await page.reload();
      await screen(page).getByText("42-seen").waitFor();
      await page.keyboard.type("exit 5\n");
      await page.getByText("It ended with exit 5.").waitFor();
    }, { path: `/ui/threads/${thread}/terminal` }));

  test("Shift and Escape leave it, and the button ends it", () =>
    inside(async (page) => {
      await startTerminal(page);
      await page.keyboard.press("Tab");
      assert.ok(await page.evaluate(() => document.activeElement.classList.contains("xterm-helper-textarea")), "Tab is the program's");
      await page.keyboard.press("Shift+Escape");
      await page.waitForFunction(() => document.activeElement.textContent === "End terminal");
      await page.keyboard.press("Enter");
      await page.getByText("It ended: killed.").waitFor();
    }, { path: `/ui/threads/${thread}/terminal` }));

  test("another user's key does not join it", async () => {
    const { exec_id } = await api("POST", `/api/threads/${thread}/exec`, { body: { command: "sleep 20", background: true, pty: { cols: 80, rows: 24 } } });
    await inside(async (page) => {
      await page.getByText("You have no thread of this id").waitFor();
      const outcome = await page.evaluate(([exec, thread]) => new Promise((done) => {
        const s = new WebSocket(`${location.origin.replace("http", "ws")}/api/threads/${thread}/pty?exec=${exec}`, ["skerry.terminal", "skerry.bearer.YQ"]);
        s.onopen = () => done("open");
        s.onerror = () => done("refused");
      }), [exec_id, thread]);
      assert.equal(outcome, "refused");
    }, { key: strangerKey, path: `/ui/threads/${thread}/terminal?exec=${exec_id}` });
    await api("DELETE", `/api/threads/${thread}/execs/${exec_id}`);
  });
});

const png = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEklEQVR4nGP4z8CAFWEXHbQSACj/P8Fu7N9hAAAAAElFTkSuQmCC", "base64");

describe("files", () => {
  test("a dropped file is uploaded where the text says, shown, and downloaded as it was", () =>
    inside(async (page, { context }) => {
      await page.getByRole("row", { name: "/mnt/user-data" }).waitFor();
      const folder = await mkdtemp(join(tmpdir(), "skerry-drop-"));
      await writeFile(join(folder, "dropped.txt"), "dropped by hand\n");
      const box = await page.locator(".files-side").boundingBox();
      const devtools = await context.newCDPSession(page);
      for (const type of ["dragEnter", "dragOver", "drop"]) {
        await devtools.send("Input.dispatchDragEvent", { type, x: box.x + 100, y: box.y + 300, data: { items: [], files: [join(folder, "dropped.txt")], dragOperationsMask: 1 } });
        await page.waitForTimeout(150);
      }
      await page.locator(".output", { hasText: "dropped by hand" }).waitFor();
      assert.equal(new URL(page.url()).searchParams.get("path"), "/mnt/user-data/uploads/dropped.txt");
      assert.equal((await exec(thread, "cat /mnt/user-data/uploads/dropped.txt")).stdout, "dropped by hand\n");
      const coming = page.waitForEvent("download");
      await page.getByRole("button", { name: "Download" }).click();
      const download = await coming;
      assert.equal(download.suggestedFilename(), "dropped.txt");
      assert.equal(await readFile(await download.path(), "utf8"), "dropped by hand\n");
      await rm(folder, { recursive: true });
    }, { path: `/ui/threads/${thread}/files` }));

  test("a chosen file goes into the folder that is selected", () =>
    inside(async (page) => {
      const chooser = page.waitForEvent("filechooser");
      await page.getByRole("button", { name: "Upload…" }).click();
      await (await chooser).setFiles([{ name: "one.bin", mimeType: "application/octet-stream", buffer: Buffer.from([0, 159, 146, 150, 255]) }]);
      await page.getByText("This file is no text").waitFor();
      assert.equal((await exec(thread, "wc -c < /mnt/user-data/workspace/one.bin")).stdout.trim(), "5");
    }, { path: `/ui/threads/${thread}/files?path=/mnt/user-data/workspace` }));

  test("an image of pixels is shown, and the tree opens by keys", async () => {
    await put(thread, "/mnt/user-data/outputs/plot.png", png);
    await inside(async (page) => {
      await page.getByRole("row", { name: "/mnt/user-data" }).focus();
      await page.keyboard.press("ArrowDown");
      await page.keyboard.press("ArrowRight");
      await page.getByRole("row", { name: "plot.png" }).waitFor();
      await page.keyboard.press("ArrowDown");
      await page.keyboard.press("Enter");
      const image = page.locator(".picture img");
      await image.waitFor();
      assert.match(await image.getAttribute("src"), /^blob:/);
      await page.waitForFunction(() => document.querySelector(".picture img").naturalWidth === 8);
    }, { path: `/ui/threads/${thread}/files` });
  });
});

describe("what a sandbox writes runs nothing", () => {
  const attack = (what) => `<img src=x onerror="ran('${what}')"><svg onload="ran('${what}')"></svg><script>ran('${what}')</script>`;

  /** The watch sees that a text runs when a page takes it as HTML. */
  async function control(text) {
    const { page, seen, close } = await open();
    await page.setContent(`<body>${text}</body>`);
    await page.waitForTimeout(300);
    await close();
    return seen.ran;
  }

  test("labels, commands, output, names and texts of files", async () => {
    const parts = { label: attack("label"), command: attack("command"), output: attack("output"), name: `<img src=x onerror=ran('name')>.txt`, text: attack("text") };
    for (const [what, text] of Object.entries(parts)) assert.ok((await control(text)).includes(what), `the watch does not see ${what}`);
    await exec(hostile, `: ${"'"}${parts.command.replaceAll("'", "’")}${"'"}; cat`, { stdin: `${parts.output}\u001b]0;${parts.output}\u0007\u202e` });
    await api("PUT", `/api/threads/${hostile}/sandbox`, { body: { labels: { x: parts.label } } });
    await put(hostile, `/mnt/user-data/outputs/${parts.name}`, parts.text);
    await inside(async (page) => {
      await page.getByRole("link", { name: hostile }).click();
      await page.getByRole("table", { name: "Execs" }).locator(".row-link").first().click();
      await page.locator(".output", { hasText: "ran('output')" }).waitFor();
      await page.getByRole("link", { name: "Files" }).click();
      await page.goto(`${server}/ui/threads/${hostile}/files?path=${encodeURIComponent(`/mnt/user-data/outputs/${parts.name}`)}`);
      await page.locator(".output", { hasText: "ran('text')" }).waitFor();
      await page.getByRole("row", { name: /onerror/ }).waitFor();
      await page.waitForTimeout(500);
    }, { path: "/ui/threads" });
  });

  test("a name of a thread that is HTML", () =>
    inside(async (page) => {
      await head(page).getByText("<img src=x").waitFor();
    }, { path: `/ui/threads/${encodeURIComponent(attack("thread").replaceAll("/", ""))}` }));

  test("files that say they are images", async () => {
    const svg = `<svg xmlns="http://www.w3.org/2000/svg" onload="ran('svg')"><script>ran('svg')</script></svg>`;
    const { page, seen, close } = await open();
    await page.setContent(svg);
    await page.waitForTimeout(300);
    assert.ok(seen.ran.includes("svg"), "the watch does not see an SVG that runs");
    await close();
    for (const name of ["logo.svg", "page.html", "fake.png"]) await put(hostile, `/mnt/user-data/outputs/${name}`, svg);
    for (const name of ["logo.svg", "page.html", "fake.png"]) {
      await inside(async (page) => {
        await page.locator(".output", { hasText: "ran('svg')" }).waitFor();
        assert.equal(await page.locator(".picture img").count(), 0);
        const coming = page.waitForEvent("download");
        await page.getByRole("button", { name: "Download" }).click();
        await coming;
      }, { path: `/ui/threads/${hostile}/files?path=/mnt/user-data/outputs/${name}&as=text` });
    }
    // HTML has a frame, too: thread.test.mjs says what that is.
    await inside(async (page) => {
      await page.locator("iframe.frame[sandbox='']").waitFor();
      await page.waitForTimeout(500);
    }, { path: `/ui/threads/${hostile}/files?path=/mnt/user-data/outputs/page.html` });
  });

  test("sequences of a terminal", async () => {
    const link = `javascript:ran("link")`;
    const { page: plain, seen, close } = await open();
    await plain.setContent(`<a href='${link}'>x</a>`);
    await plain.click("a");
    await plain.waitForTimeout(300);
    assert.ok(seen.ran.includes("link"), "the watch does not see a link that runs");
    await close();
    await put(hostile, "/mnt/user-data/workspace/evil", [
      `\u001b]0;${attack("title")}\u0007`, `\u001b]8;;${link}\u001b\\click-me\u001b]8;;\u001b\\ `, `\u001b]8;;https://evil.example/\u001b\\go-there\u001b]8;;\u001b\\ `,
      `\u001b]52;c;${Buffer.from("stolen").toString("base64")}\u0007`, `\u001b]52;c;?\u0007`, "\u001b[21t", `\u001bP${attack("dcs")}\u001b\\`, "\u001b[3;1000;1000t", attack("terminal"), "\nshown-whole\n",
    ].join(""));
    await inside(async (page, { context }) => {
      await context.grantPermissions(["clipboard-read", "clipboard-write"], { origin: server });
      await page.evaluate(() => navigator.clipboard.writeText("mine"));
      await startTerminal(page);
      await page.keyboard.type("clear; cat evil\n");
      await screen(page).getByText("shown-whole").waitFor();
      for (const text of ["click-me", "go-there"]) {
        const box = await screen(page).getByText(text).first().boundingBox();
        await page.mouse.move(box.x + 10, box.y + 5);
        await page.waitForTimeout(200);
        await page.mouse.click(box.x + 10, box.y + 5);
      }
      await page.waitForTimeout(500);
      assert.equal(await page.evaluate(() => navigator.clipboard.readText()), "mine");
      assert.equal(await page.title(), `${hostile} · Skerry`);
    }, { path: `/ui/threads/${hostile}/terminal` });
  });

  test("the page's policy refuses what would run all the same, and the watch sees it", async () => {
    const { page, seen, close } = await open();
    await login(page, adminKey, "/ui/threads");
    assert.deepEqual(seen.violations, []);
    await page.evaluate(() => {
      document.body.insertAdjacentHTML("beforeend", `<img src="data:," onerror="ran('inline')"><div style="color:red"></div>`);
      const s = document.createElement("script");
      s.textContent = "ran('script')";
      document.body.append(s);
      const other = document.createElement("img");
      other.src = "https://elsewhere.example/x.png";
      document.body.append(other);
      return fetch("https://elsewhere.example/").catch(() => undefined);
    });
    await page.waitForTimeout(500);
    assert.deepEqual(seen.ran, []);
    assert.ok(seen.violations.length >= 4, seen.violations.join("\n"));
    await close();
  });

  test("a request to another host is seen", async () => {
    const { page, seen, close } = await open();
    await page.goto("http://127.0.0.1:9/").catch(() => undefined);
    assert.deepEqual(seen.elsewhere, ["http://127.0.0.1:9/"]);
    await close();
  });
});

const pages = {
  threads: ["/ui/threads", (p) => p.getByRole("link", { name: thread }).waitFor()],
  execs: [`/ui/threads/${thread}`, (p) => p.locator(".row-link").first().waitFor()],
  exec: [`/ui/threads/${thread}`, async (p) => {
    await p.locator(".row-link").last().click();
    await p.locator(".split-detail .facts").waitFor();
  }],
  "terminal before": [`/ui/threads/${thread}/terminal`, (p) => p.getByRole("button", { name: "Start a terminal" }).waitFor()],
  terminal: [`/ui/threads/${thread}/terminal`, startTerminal],
  files: [`/ui/threads/${thread}/files`, (p) => p.getByRole("row", { name: "outputs" }).waitFor()],
  text: [`/ui/threads/${thread}/files?path=/mnt/user-data/workspace/notes.md`, (p) => p.getByText("# Notes").waitFor()],
  question: [`/ui/threads/${thread}`, async (p) => {
    await p.getByRole("button", { name: "Delete thread…" }).click();
    await p.getByRole("alertdialog").waitFor();
  }],
  "no such thread": ["/ui/threads/nobodys", (p) => p.getByText("You have no thread of this id").waitFor()],
  "no such page": ["/ui/nowhere", (p) => p.getByText("There is no such page").waitFor()],
};

describe("everybody can use it", () => {
  for (const colorScheme of ["light", "dark"]) {
    for (const width of [1280, 390]) {
      test(`${colorScheme}, ${width} px: axe finds nothing, and nothing is wider than the page`, async () => {
        const it = await open({ colorScheme, viewport: { width, height: 844 } });
        await it.page.goto(`${server}/ui/login`);
        await it.page.getByLabel("API key").waitFor();
        const found = (await axe(it.page)).map((f) => `login: ${f}`);
        await login(it.page, adminKey);
        for (const [name, [path, ready]] of Object.entries(pages)) {
          await it.page.goto(server + path);
          await ready(it.page);
          found.push(...(await axe(it.page)).map((f) => `${name}: ${f}`));
          const wide = await it.page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
          if (wide > 0) found.push(`${name}: ${wide} px wider than the page`);
          if (name === "terminal") {
            await it.page.getByRole("button", { name: "End terminal" }).click();
            await it.page.getByText(/^It ended/).waitFor(); // a page that closes takes its request with it
          }
        }
        await it.close();
        assert.deepEqual(found, []);
        assert.deepEqual(it.seen.violations, []);
      });
    }
  }

  test("axe finds what is wrong", async () => {
    const { page, close } = await open();
    await page.goto(`${server}/ui/login`);
    await page.getByLabel("API key").waitFor();
    await page.evaluate(() => document.querySelector("main").insertAdjacentHTML("beforeend", "<img src=x><button></button>"));
    const found = await axe(page);
    assert.ok(found.some((f) => f.startsWith("image-alt")) && found.some((f) => f.startsWith("button-name")), found.join("\n"));
    await close();
  });

  test("the theme follows the system until the switch says otherwise, and stays so", () =>
    inside(async (page) => {
      const dark = () => page.evaluate(() => Number(getComputedStyle(document.body).backgroundColor.match(/\d+/)[0]) < 80);
      assert.equal(await dark(), true);
      await page.getByLabel("Theme").selectOption("light");
      assert.equal(await dark(), false);
      await page.reload();
      await head(page).waitFor();
      assert.equal(await dark(), false);
    }, { colorScheme: "dark" }));

  test("login, a thread and its pause by keys alone, with a focus that is seen", async () => {
    await api("PUT", `/api/threads/${thread}/sandbox`, { body: {} });
    const { page, close } = await open();
    await page.goto(`${server}/ui/threads`);
    await page.getByLabel("API key").waitFor();
    await page.keyboard.type(adminKey);
    await page.keyboard.press("Tab");
    await page.keyboard.press("Space");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page.getByRole("link", { name: thread }).waitFor();
    /** Goes on with Tab until something has this name. */
    const to = async (name) => {
      for (let i = 0; i < 40; i++) {
        await page.keyboard.press("Tab");
        const now = await page.evaluate(() => {
          const e = document.activeElement;
          const styles = [getComputedStyle(e), getComputedStyle(e, "::after")];
          return { name: e.getAttribute("aria-label") ?? e.textContent, seen: e.matches("select, input") || styles.some((s) => s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2) };
        });
        assert.ok(now.seen, `the focus on ${now.name} is not seen`);
        if (now.name === name) return;
      }
      assert.fail(`${name} has no place in the order of Tab`);
    };
    await to(thread);
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: "Pause" }).waitFor();
    await to("Pause");
    await page.keyboard.press("Enter");
    await state(page).getByText("paused").waitFor();
    await to("Delete thread…");
    await page.keyboard.press("Enter");
    await page.getByRole("alertdialog").waitFor();
    await page.waitForFunction(() => document.activeElement.textContent === "Cancel");
    await page.keyboard.press("Escape");
    await page.waitForFunction(() => document.activeElement.textContent === "Delete thread…");
    await close();
  });

  test("a server that is away is said in words, and the page goes on when it is back", () =>
    inside(async (page) => {
      await page.getByRole("link", { name: thread }).waitFor();
      await page.route("**/api/**", (r) => r.abort());
      await page.goto(`${server}/ui/threads`);
      await page.getByText("The console cannot reach its server").waitFor();
      await page.unroute("**/api/**");
      await page.getByRole("button", { name: "Try again" }).click();
      await page.getByRole("link", { name: thread }).waitFor();
    }, { path: "/ui/threads" }));
});
