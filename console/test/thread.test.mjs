// What the page of one thread promises beyond execs and terminals: its timeline, previews of its files, the editor, and its contexts.
import assert from "node:assert/strict";
import { createServer } from "node:net";
import { after, before, describe, test } from "node:test";
import { adminKey, api, attack, browser, control, exec, forget, inside, keyFor, login, looksGood, open, put, server } from "./browser.mjs";

const thread = "thread-main";
const hers = "thread-nora";
const outputs = "/mnt/user-data/outputs";
const png = "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEklEQVR4nGP4z8CAFWEXHbQSACj/P8Fu7N9hAAAAAElFTkSuQmCC";
let agentKey, actingKey, auditorKey, strangerKey;

const code = (of, text, key = adminKey, more = {}) => api("POST", `/api/threads/${of}/execute_code`, { key, body: { language: "python", code: text, ...more } });
const read = async (of, path, key = adminKey) => {
  const answer = await fetch(`${server}/api/threads/${of}/files/content?path=${encodeURIComponent(path)}`, { headers: { Authorization: `Bearer ${key}` } });
  return answer.ok ? answer.text() : `status ${answer.status}`;
};
const query = (page) => new URL(page.url()).searchParams;
const waterfall = (page) => page.getByRole("table", { name: "Waterfall" });
const file = (path, more = "") => `/ui/threads/${thread}/files?path=${encodeURIComponent(path)}${more}`;

before(async () => {
  [agentKey, actingKey, auditorKey, strangerKey] = await Promise.all([keyFor("norma", "agent"), keyFor("root", "admin", { act_for: true }), keyFor("aud", "auditor"), keyFor("bo", "agent")]);
  await exec(thread, "echo first; : of the timeline");
  await code(thread, "print(call_mcp_tool('demo__list_directory', {'path': '/islands'}))\ntry:\n    call_mcp_tool('demo__read_text_file', {'path': '/islands/../etc'})\nexcept Exception as e:\n    print(e)\nopen('/mnt/user-data/outputs/made.txt', 'w').write('made')\n", adminKey, { description: "Looks at islands" });
  await exec(thread, "exit 4");
  await code(hers, "print(call_mcp_tool('demo__list_directory', {'path': '/islands'}))", agentKey, { description: "Her own look" });
});

after(async () => {
  await browser.close();
  await forget(agentKey);
  await api("DELETE", `/api/threads/${thread}`);
});

test("the names of the variables of its sandbox are shown, and no value", async () => {
  await api("PUT", `/api/threads/${thread}/sandbox`, { body: { env: { DEPLOY_TARGET: "value-of-a-variable" } } });
  await inside(async (page) => {
    await page.locator(".facts").getByText("DEPLOY_TARGET").waitFor();
    assert.ok(!(await page.content()).includes("value-of-a-variable"));
  }, { path: `/ui/threads/${thread}` });
});

describe("timeline", () => {
  const path = `/ui/threads/${thread}/timeline`;

  test("an exec is a bar, with its calls and changed files below, and each leads to its record", () =>
    inside(async (page) => {
      await page.getByRole("status").getByText("3 execs, 2 tool calls, 1 changes of files").waitFor();
      await waterfall(page).getByText("1 file").waitFor();
      await waterfall(page).getByRole("link", { name: /^exec exit 4: exit 4/ }).click();
      await page.locator(".split-detail").getByText("exit 4", { exact: true }).first().waitFor();
      await page.goBack();
      await waterfall(page).getByRole("link", { name: /^tool_call demo__read_text_file: denied/ }).click();
      await page.getByRole("region", { name: "One record" }).getByText("demo__read_text_file").first().waitFor();
      assert.equal(new URL(page.url()).pathname, "/ui/audit");
      await page.goBack();
      await waterfall(page).getByRole("link", { name: /^file_change .*made\.txt/ }).click();
      await page.getByRole("region", { name: "One record" }).getByText("made.txt").first().waitFor();
    }, { path }));

  test("a span is chosen by keys, is in the address, and shows what was in it alone", () =>
    inside(async (page) => {
      await waterfall(page).getByText("Looks at islands").waitFor();
      const plot = page.getByRole("group", { name: "What happened over time" });
      await plot.focus();
      await page.keyboard.press("Home");
      await page.keyboard.press("Shift+ArrowRight");
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => new URL(location.href).searchParams.has("from"));
      assert.ok(query(page).get("from") < query(page).get("to"));
      await page.goto(`${server}${path}?from=2001-01-01T00:00:00Z&to=2001-01-02T00:00:00Z`);
      await page.getByText("Nothing happened in this time").waitFor();
      await page.getByRole("link", { name: "Whole thread" }).click();
      await waterfall(page).getByText("Looks at islands").waitFor();
      assert.equal(query(page).get("from"), null);
    }, { path }));

  test("what runs now comes by itself, and ends", () =>
    inside(async (page) => {
      await waterfall(page).getByText("Looks at islands").waitFor();
      const { exec_id } = await exec(thread, "while [ ! -e /tmp/enough ]; do sleep 0.1; done; : live", { background: true });
      await waterfall(page).getByRole("link", { name: /^exec .*: live: running/ }).waitFor();
      await exec(thread, "touch /tmp/enough");
      await waterfall(page).getByRole("link", { name: /^exec .*: live: (exited|ok)/ }).waitFor();
      assert.equal((await api("GET", `/api/threads/${thread}/execs/${exec_id}`)).status, "exited");
    }, { path }));

  test("a list has the same facts for keys and screen readers", () =>
    inside(async (page) => {
      const list = page.getByRole("table", { name: "What happened" });
      const row = list.getByRole("row").filter({ hasText: "demo__read_text_file" });
      await row.getByText("denied").waitFor();
      await row.getByText("Below the exec").waitFor({ state: "attached" });
      await list.getByRole("row").filter({ hasText: "exit 4" }).getByRole("link").focus();
      await page.keyboard.press("Enter");
      await page.locator(".split-detail").waitFor();
    }, { path: `${path}?view=list` }));

  test("a key that may act for another user sees hers, and no other key does", async () => {
    await inside(async (page) => {
      await waterfall(page).getByText("Her own look").waitFor();
      await page.getByRole("status").getByText(/^1 exec, 1 tool calls/).waitFor();
      await waterfall(page).getByRole("link", { name: /^tool_call/ }).click();
      await page.getByRole("region", { name: "One record" }).getByText("demo__list_directory").first().waitFor();
    }, { key: actingKey, path: `/ui/threads/${hers}/timeline?of=norma` });
    for (const key of [strangerKey, auditorKey, adminKey]) {
      await inside(async (page) => {
        await page.getByRole("alert").or(page.locator(".empty")).first().waitFor();
        assert.equal(await page.getByText("Her own look").count(), 0);
        assert.equal(await waterfall(page).count(), 0);
      }, { key, path: `/ui/threads/${hers}/timeline?of=norma` });
    }
  });

  test("of 10,000 execs, only those in sight are in the page", () =>
    inside(async (page) => {
      const begun = Date.now() - 10_000_000;
      const items = Array.from({ length: 10_000 }, (_, i) => ({ exec_id: `e-${i}`, action: "exec", subject: `many ${i}`, status: "exited", exit_code: 0, background: false, started_at: new Date(begun + i * 1000).toISOString(), duration_ms: 700 }));
      await page.route(`**/api/threads/${thread}/execs*`, (r) => r.fulfill({ json: { items: items.toReversed() } }));
      for (const [view, name] of [["", "Waterfall"], ["?view=list", "What happened"]]) {
        await page.goto(`${server}${path}${view}`);
        const table = page.getByRole("table", { name, exact: true });
        await table.getByText("many 9999").waitFor();
        assert.ok(Number(await table.getAttribute("aria-rowcount")) > 10_000);
        const shown = async () => table.getByRole("row").count();
        assert.ok((await shown()) < 100, String(await shown()));
        await table.evaluate((t) => t.scrollTo(0, t.scrollHeight));
        await table.getByText("many 0", { exact: true }).waitFor();
        assert.ok((await shown()) < 100, String(await shown()));
      }
    }, { path }));

  test("a command that is HTML is text", async () => {
    const evil = attack("timeline").replaceAll("'", "’");
    assert.notDeepEqual(await control(attack("timeline")), []);
    await exec(thread, `: '${evil}'`);
    await inside(async (page) => {
      await waterfall(page).getByText("<img src=x").first().waitFor();
      await page.getByLabel("How it is shown").selectOption("list");
      await page.getByRole("table", { name: "What happened" }).getByText("<img src=x").first().waitFor();
    }, { path });
  });
});

/** A PDF of one page, with a script that is to run when it opens. */
function pdf(words, script) {
  const parts = [
    "<< /Type /Catalog /Pages 2 0 R /OpenAction << /S /JavaScript /JS (" + script + ") >> /AA << /WC << /S /JavaScript /JS (" + script + ") >> >> >>",
    "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
    `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 200] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> /Annots [<< /Type /Annot /Subtype /Link /Rect [0 0 300 200] /A << /S /URI /URI (javascript:${script}) >> >>] >>`,
    null,
    "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
  ];
  const stream = `BT /F1 24 Tf 20 100 Td (${words}) Tj ET 0 0 120 40 re f`;
  parts[3] = `<< /Length ${stream.length} >>\nstream\n${stream}\nendstream`;
  let out = "%PDF-1.4\n";
  const at = parts.map((p, i) => {
    const here = out.length;
    out += `${i + 1} 0 obj\n${p}\nendobj\n`;
    return here;
  });
  const xref = out.length;
  out += `xref\n0 ${parts.length + 1}\n0000000000 65535 f \n${at.map((a) => `${String(a).padStart(10, "0")} 00000 n \n`).join("")}trailer\n<< /Size ${parts.length + 1} /Root 1 0 R >>\nstartxref\n${xref}\n%%EOF\n`;
  return out;
}

describe("previews", () => {
  test("comma separated values are a table, whose cells are text", async () => {
    const evil = attack("cell");
    assert.notDeepEqual(await control(evil), []);
    await put(thread, `${outputs}/report.csv`, `name,"what, exactly"\nann,"two\nlines"\n"${evil.replaceAll('"', '""')}",=HYPERLINK(1)\n`);
    await put(thread, `${outputs}/tabs.tsv`, "a,b\tc\n1,2\t3\n");
    await inside(async (page) => {
      const table = page.getByRole("table", { name: "Table" });
      await table.getByRole("columnheader", { name: "what, exactly" }).waitFor();
      await table.getByText("two").waitFor();
      await table.getByText("ran('cell')").first().waitFor();
      await page.getByRole("status").getByText("2 rows, 2 columns").waitFor();
      await page.getByLabel("How it is shown").selectOption("text");
      await page.locator(".output", { hasText: "=HYPERLINK(1)" }).waitFor();
      assert.equal(query(page).get("as"), "text");
      await page.goto(server + file(`${outputs}/tabs.tsv`));
      await table.getByRole("columnheader", { name: "a,b" }).waitFor();
    }, { path: file(`${outputs}/report.csv`) });
  });

  test("of 15,000 rows and 300 columns, only those in sight are in the page", async () => {
    const row = (i) => Array.from({ length: 300 }, (_, c) => `${i}:${c}`).join(",");
    await put(thread, `${outputs}/wide.csv`, Array.from({ length: 2_000 }, (_, i) => row(i)).join("\n"));
    await put(thread, `${outputs}/long.csv`, `n,square\n${Array.from({ length: 15_000 }, (_, i) => `${i},${i * i}`).join("\n")}\n`);
    await inside(async (page) => {
      const table = page.getByRole("table", { name: "Table" });
      await page.getByText("15,000 rows, 2 columns").waitFor();
      await table.evaluate((t) => t.scrollTo(0, t.scrollHeight));
      await table.getByText(String(14_999 ** 2)).waitFor();
      assert.ok((await table.getByRole("row").count()) < 100);
      await page.goto(server + file(`${outputs}/wide.csv`));
      await page.getByText("The first 100 columns are shown.").waitFor();
      assert.ok((await table.getByRole("cell").count()) < 8_000);
    }, { path: file(`${outputs}/long.csv`) });
  });

  test("a notebook is its cells, and what it displays is text and pixels", async () => {
    const evil = attack("notebook");
    const book = {
      nbformat: 4, nbformat_minor: 5, metadata: {},
      cells: [
        { cell_type: "markdown", metadata: {}, source: ["# A heading\n", `Text ${evil}`] },
        { cell_type: "code", metadata: {}, execution_count: 3, source: `print('${"x"}') # ${evil}`, outputs: [
          { output_type: "stream", name: "stdout", text: [`streamed \u001b[31m${evil}\u001b[0m\n`] },
          { output_type: "display_data", metadata: {}, data: { "text/html": [evil], "text/plain": ["a frame"], "application/javascript": ["ran('notebook')"] } },
          { output_type: "display_data", metadata: {}, data: { "image/svg+xml": evil } },
          { output_type: "display_data", metadata: {}, data: { "image/png": Buffer.from(evil).toString("base64") } },
          { output_type: "execute_result", execution_count: 3, metadata: {}, data: { "image/png": `${png}\n`, "text/plain": "<Figure>" } },
          { output_type: "error", ename: "E", evalue: "v", traceback: [`\u001b[0;31mTraceback\u001b[0m ${evil}`] },
        ] },
        { cell_type: "raw", metadata: {}, source: evil },
      ],
    };
    assert.notDeepEqual(await control(evil), []);
    await put(thread, `${outputs}/book.ipynb`, JSON.stringify(book));
    await put(thread, `${outputs}/broken.ipynb`, evil);
    await inside(async (page) => {
      const cells = page.getByRole("list", { name: "Cells" });
      await cells.getByRole("heading", { name: "A heading" }).waitFor();
      await cells.getByText("In [3]").waitFor();
      await cells.getByText("streamed <img").waitFor();
      await cells.getByText("a frame").waitFor();
      await cells.getByText("text/html, application/javascript, which are not shown").waitFor();
      await cells.getByText("are no image of pixels").waitFor();
      await page.waitForFunction(() => [...document.querySelectorAll(".notebook img")].some((i) => i.naturalWidth === 8));
      assert.equal(await page.locator(".notebook img").count(), 1);
      await cells.getByText("Traceback <img").waitFor();
      await page.waitForTimeout(500);
      await page.goto(server + file(`${outputs}/broken.ipynb`));
      await page.getByText("This file is no notebook of version 4").waitFor();
    }, { path: file(`${outputs}/book.ipynb`) });
  });

  test("a PDF is pictures of its pages, and its scripts and links do nothing", async () => {
    const script = "ran\\('pdf'\\)";
    assert.ok((await control("<script>ran('pdf')</script>")).includes("pdf"), "the watch does not see the script of the PDF when it runs");
    assert.match(pdf("x", script), /\/JavaScript \/JS \(ran/);
    await put(thread, `${outputs}/paper.pdf`, pdf("Words of a page", script));
    await put(thread, `${outputs}/broken.pdf`, attack("pdf"));
    await inside(async (page, { seen }) => {
      await page.getByText("Words of a page").waitFor({ state: "attached" });
      const canvas = page.getByRole("img", { name: "Page 1" });
      const dark = () => canvas.evaluate((c) => {
        const { data } = c.getContext("2d").getImageData(0, 0, c.width, c.height);
        let n = 0;
        for (let i = 0; i < data.length; i += 4) if (data[i] < 100 && data[i + 3] > 200) n++;
        return n / (c.width * c.height);
      });
      const share = await dark();
      assert.ok(share > 0.09 && share < 0.5, `dark pixels: ${share}`); // a filled part and letters
      await canvas.click();
      await page.waitForTimeout(500);
      assert.deepEqual(seen.ran, []);
      await page.goto(server + file(`${outputs}/broken.pdf`));
      await page.getByText("It is broken, is no PDF, or wants a password").waitFor();
    }, { path: file(`${outputs}/paper.pdf`) });
  });

  test("HTML is shown in a frame that runs nothing and asks nobody", async () => {
    // Another host counts who connects: a request that the policy stops is seen by the watch, and is never sent.
    let connections = [];
    const other = createServer((socket) => {
      connections.push("a connection");
      socket.on("data", (d) => connections.push(d.toString().split("\r\n")[0])).on("error", () => undefined).end("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    });
    await new Promise((done) => other.listen(0, "127.0.0.1", done));
    other.unref();
    const elsewhere = `http://127.0.0.1:${other.address().port}`;
    const html = `<!doctype html><html><head><title>x</title><base href="${elsewhere}/"><meta http-equiv="refresh" content="1;url=${elsewhere}/gone"><link rel="stylesheet" href="${elsewhere}/s.css"><LINK rel="preconnect" href="${elsewhere}"><style>body { background: url(${elsewhere}/b.png) }</style></head><body><h1>Quarterly report</h1><table><tr><td>Open</td><td>3</td></tr></table>${attack("html")}<img src="${elsewhere}/i.png"><img src="/ui/icon.svg"><a href="${elsewhere}/away">away</a><a href="javascript:ran('link')">link</a><form action="${elsewhere}/form"><button>send</button></form><iframe src="${elsewhere}/frame"></iframe><iframe srcdoc="${attack("inner").replaceAll('"', "&quot;")}"></iframe><object data="${elsewhere}/o"></object></body></html>`;
    const watch = await open();
    await watch.page.setContent(html).catch(() => undefined);
    await watch.page.waitForTimeout(500);
    await watch.close();
    assert.ok(watch.seen.ran.includes("html") && connections.length > 2, `what the page does without the sandbox: ${watch.seen.ran.join()}, ${connections.join()}`);
    connections = [];
    await put(thread, `${outputs}/report.html`, html);
    const { page, seen, close } = await open();
    await login(page, adminKey, file(`${outputs}/report.html`));
    const frame = page.frameLocator("iframe.frame");
    await frame.getByRole("heading", { name: "Quarterly report" }).waitFor();
    await frame.getByText("Open").waitFor();
    assert.equal(await page.locator("iframe.frame").getAttribute("sandbox"), "");
    await page.waitForTimeout(500);
    assert.deepEqual(connections, [], "before anybody touches it");
    assert.equal(await frame.getByRole("link").or(frame.getByRole("button")).count(), 0);
    for (const name of ["away", "link", "send"]) await frame.getByText(name, { exact: true }).click();
    await page.waitForTimeout(1_500);
    await frame.getByRole("heading", { name: "Quarterly report" }).waitFor();
    assert.deepEqual([seen.ran, seen.errors, connections], [[], [], []]);
    assert.equal(await page.title(), `${thread} · Skerry`);
    await close();
    await new Promise((done) => other.close(done));
  });

  test("a name that is HTML is text", async () => {
    const name = "<img src=x onerror=ran('name')>.csv";
    assert.ok((await control(name)).includes("name"));
    await put(thread, `${outputs}/${name}`, "a,b\n1,2\n");
    await inside(async (page) => {
      await page.getByRole("table", { name: "Table" }).getByText("2").waitFor();
      await page.getByRole("heading", { name: /onerror/ }).waitFor();
    }, { path: file(`${outputs}/${name}`) });
  });
});

const text = (page) => page.getByRole("textbox", { name: "Text of the file" });

describe("editor", () => {
  const notes = "/mnt/user-data/workspace/notes.txt";
  /** Opens a file in the editor, and writes a line above all. */
  async function write(page, line) {
    await text(page).click();
    await page.keyboard.press("Control+Home");
    await page.keyboard.type(`${line}\n`);
    await page.getByRole("button", { name: "Review changes" }).click();
    await page.getByRole("region", { name: "What will change" }).locator("ins", { hasText: line }).waitFor();
  }

  test("changes are shown before they are saved, and ends of lines stay", async () => {
    await put(thread, notes, "one\r\ntwo\r\n");
    await inside(async (page) => {
      await page.getByRole("link", { name: "Edit" }).click();
      assert.equal(await page.getByRole("button", { name: "Review changes" }).isDisabled(), true);
      await write(page, "zero");
      assert.equal(await read(thread, notes), "one\r\ntwo\r\n");
      await page.getByRole("button", { name: "Save", exact: true }).click();
      await page.getByText("Saved", { exact: true }).waitFor();
      assert.equal(await read(thread, notes), "zero\r\none\r\ntwo\r\n");
      await page.getByRole("link", { name: "Close" }).click();
      await page.locator(".output", { hasText: "zero" }).waitFor();
    }, { path: file(notes) });
  });

  test("what somebody else saved meanwhile is told and shown, and nothing is lost", async () => {
    await put(thread, notes, "base\n");
    await inside(async (page) => {
      await write(page, "mine");
      await put(thread, notes, "theirs\nbase\n", adminKey);
      await page.getByRole("button", { name: "Save", exact: true }).click();
      await page.getByText("Somebody else saved the file meanwhile.").waitFor();
      assert.equal(await read(thread, notes), "theirs\nbase\n");
      const diff = page.getByRole("region", { name: "What will change" });
      await diff.locator("del", { hasText: "theirs" }).waitFor();
      await diff.locator("ins", { hasText: "mine" }).waitFor();
      await page.getByRole("button", { name: "Back to the text" }).click();
      await text(page).getByText("mine").waitFor();
      await page.getByRole("button", { name: "Review changes" }).click();
      await page.getByRole("button", { name: "Save over the newer version" }).click();
      await page.getByText("Saved", { exact: true }).waitFor();
      assert.equal(await read(thread, notes), "mine\nbase\n");
    }, { path: file(notes, "&edit=true") });
  });

  test("a program of the sandbox that changes the file does not change the text that is edited", async () => {
    await put(thread, notes, "base\n");
    await inside(async (page) => {
      await write(page, "kept");
      await exec(thread, "echo program >> /mnt/user-data/workspace/notes.txt", { report_files: true });
      await page.waitForTimeout(1_500);
      await page.getByRole("button", { name: "Back to the text" }).click();
      await text(page).getByText("kept").waitFor();
      await page.getByRole("button", { name: "Review changes" }).click();
      await page.getByRole("button", { name: "Save", exact: true }).click();
      await page.getByText("Somebody else saved the file meanwhile.").waitFor();
      assert.equal(await read(thread, notes), "base\nprogram\n");
    }, { path: file(notes, "&edit=true") });
  });

  test("leaving with changes asks", async () => {
    await put(thread, notes, "base\n");
    await inside(async (page) => {
      await write(page, "unsaved");
      const asks = () => page.evaluate(() => !dispatchEvent(new Event("beforeunload", { cancelable: true })));
      assert.equal(await asks(), true, "a page that is closed");
      await page.getByRole("link", { name: "Processes" }).click();
      await page.getByRole("alertdialog").getByRole("button", { name: "Stay" }).click();
      await page.getByRole("button", { name: "Back to the text" }).click();
      await text(page).getByText("unsaved").waitFor();
      await page.getByRole("link", { name: "Processes" }).click();
      await page.getByRole("alertdialog").getByRole("button", { name: "Leave" }).click();
      await page.getByRole("region", { name: "Processes of the sandbox" }).waitFor();
      assert.equal(await asks(), false);
      assert.equal(await read(thread, notes), "base\n");
    }, { path: file(notes, "&edit=true") });
  });

  test("a file is made, renamed and deleted, and none is replaced by a new one", () =>
    inside(async (page) => {
      const ask = async (button, value, yes) => {
        await page.getByRole("button", { name: button }).click();
        await page.getByRole("dialog").getByRole("textbox").fill(value);
        await page.getByRole("dialog").getByRole("button", { name: yes }).click();
      };
      await put(thread, notes, "base\n");
      await ask("New file…", notes, "Create");
      await page.getByRole("dialog").getByText("exists").waitFor();
      assert.equal(await read(thread, notes), "base\n");
      await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
      await ask("New file…", "/mnt/user-data/workspace/new/plan.md", "Create");
      await write(page, "# Plan");
      await page.getByRole("button", { name: "Save", exact: true }).click();
      await page.getByText("Saved", { exact: true }).waitFor();
      await page.getByRole("link", { name: "Close" }).click();
      await ask("Rename…", notes, "Rename");
      await page.getByRole("dialog").getByText("exists").waitFor();
      await page.getByRole("dialog").getByRole("textbox").fill("/mnt/user-data/workspace/new/other.md");
      await page.getByRole("dialog").getByRole("button", { name: "Rename" }).click();
      await page.getByRole("heading", { name: "other.md" }).waitFor();
      assert.equal(await read(thread, "/mnt/user-data/workspace/new/other.md"), "# Plan\n");
      await page.getByRole("button", { name: "Delete…" }).click();
      await page.getByRole("alertdialog").getByRole("button", { name: "Delete file" }).click();
      await page.getByText("Choose a file").waitFor();
      assert.equal(await read(thread, "/mnt/user-data/workspace/new/other.md"), "status 404");
    }, { path: `/ui/threads/${thread}/files` }));

  test("what nobody may change has no way to change it", () =>
    inside(async (page) => {
      await page.getByRole("row", { name: "/mnt/skills" }).waitFor();
      await page.getByRole("heading", { name: "skills" }).waitFor();
      for (const name of ["Rename…", "Delete…"]) assert.equal(await page.getByRole("button", { name }).count(), 0);
    }, { path: `/ui/threads/${thread}/files?path=/mnt/skills&edit=true` }));
});

describe("contexts", () => {
  const path = `/ui/threads/${thread}/contexts`;
  async function run(page, program) {
    await page.getByLabel("Code", { exact: true }).fill(program);
    await page.getByRole("button", { name: "Run", exact: true }).click();
  }
  const detail = (page) => page.getByRole("region", { name: "One context" });

  test("code runs in one, which keeps its variables, is interrupted, restarted and ended", () =>
    inside(async (page) => {
      await page.getByRole("button", { name: "New context" }).click();
      await detail(page).getByText("idle").waitFor({ timeout: 60_000 });
      await run(page, "x = 41\nprint('printed')");
      await page.locator(".output", { hasText: "printed" }).waitFor();
      await detail(page).getByRole("status").getByText("exit 0").waitFor();
      await run(page, "x + 1");
      await detail(page).getByRole("list", { name: "Results" }).getByText("42").waitFor();
      await run(page, "import time\nprint('waits')\nwhile True: time.sleep(0.1)");
      await page.locator(".output", { hasText: "waits" }).waitFor();
      await page.getByRole("button", { name: "Interrupt" }).click();
      await detail(page).getByRole("status").getByText("exit 130").waitFor();
      await page.getByRole("button", { name: "Restart…" }).click();
      await page.getByRole("alertdialog").getByRole("button", { name: "Restart" }).click();
      await page.getByRole("alertdialog").waitFor({ state: "detached" });
      await run(page, "x");
      await page.locator(".output", { hasText: "NameError" }).waitFor();
      await page.getByRole("button", { name: "End…" }).click();
      await page.getByRole("alertdialog").getByRole("button", { name: "End context" }).click();
      await page.getByText("There is no context here now").waitFor();
      assert.deepEqual((await api("GET", `/api/threads/${thread}/contexts`)).items, []);
    }, { path }));

  test("what it displays is pixels and text, and runs nothing", async () => {
    const evil = attack("result");
    assert.notDeepEqual(await control(evil), []);
    const made = await api("POST", `/api/threads/${thread}/contexts`, { body: { language: "python" } });
    await inside(async (page) => {
      await run(page, `import base64\nfrom IPython.display import display, HTML, Image, SVG\nevil = ${JSON.stringify(evil)}\nprint(evil)\ndisplay(HTML(evil))\ndisplay({"image/svg+xml": evil, "application/javascript": "ran('result')"}, raw=True)\ndisplay(Image(data=base64.b64decode("${png}"), format="png"))`);
      await page.locator(".output", { hasText: "<img src=x" }).first().waitFor();
      await detail(page).getByText(/image\/svg\+xml.*not shown/).waitFor();
      await page.waitForFunction(() => [...document.querySelectorAll(".results img")].some((i) => i.naturalWidth === 8));
      assert.equal(await page.locator(".results img").count(), 1);
      await page.waitForTimeout(500);
    }, { path: `${path}?context=${made.context_id}` });
    await api("DELETE", `/api/threads/${thread}/contexts/${made.context_id}`);
  });

  test("a stranger sees none of them", () =>
    inside(async (page) => {
      await page.getByText("You have no thread of this id").waitFor();
      assert.equal(await page.getByRole("button", { name: "New context" }).count(), 0);
    }, { key: strangerKey, path }));
});

describe("what the agent has", () => {
  const path = `/ui/threads/${thread}/agent`;

  test("tools to register, servers, skills, and active tools that can be put away", async () => {
    await api("PUT", `/api/threads/${thread}/tools/active/demo__read_text_file`);
    await inside(async (page) => {
      await page.getByRole("list", { name: "Tools to register" }).getByText("demo__list_directory", { exact: true }).waitFor();
      await page.getByRole("list", { name: "MCP servers of the thread" }).getByRole("link", { name: "demo" }).waitFor();
      await page.getByRole("list", { name: "Skills of the thread" }).getByText("pdf", { exact: true }).waitFor();
      await page.getByRole("button", { name: "Put demo__read_text_file away" }).click();
      await page.getByText("None.").waitFor();
      assert.deepEqual((await api("GET", `/api/threads/${thread}`)).active_tools ?? [], []);
    }, { path });
  });

  test("a stranger sees nothing of it", () =>
    inside(async (page) => {
      await page.getByText("You have no thread of this id").waitFor();
      assert.equal(await page.getByText("Tools to register").count(), 0);
    }, { key: strangerKey, path }));
});

test("axe finds nothing, and nothing is wider than the page", async () => {
  await put(thread, `${outputs}/plain.html`, "<h1>Report</h1><p>Fine</p>");
  await put(thread, `${outputs}/small.csv`, "a,b\n1,2\n");
  await put(thread, `${outputs}/book2.ipynb`, JSON.stringify({ nbformat: 4, nbformat_minor: 5, metadata: {}, cells: [{ cell_type: "markdown", metadata: {}, source: "# Title" }, { cell_type: "code", metadata: {}, execution_count: 1, source: "1 + 1", outputs: [{ output_type: "execute_result", data: { "text/plain": "2" } }] }] }));
  await put(thread, `${outputs}/paper2.pdf`, pdf("Fine", "1"));
  await put(thread, "/mnt/user-data/workspace/axe.txt", "a text\n");
  const made = await api("POST", `/api/threads/${thread}/contexts`, { body: { language: "python" } });
  const found = await looksGood({
    timeline: [`/ui/threads/${thread}/timeline`, (p) => p.locator(".waterfall-exec").first().waitFor()],
    list: [`/ui/threads/${thread}/timeline?view=list`, (p) => p.locator(".grid-timeline .row-link").first().waitFor()],
    table: [file(`${outputs}/small.csv`), (p) => p.getByRole("table", { name: "Table" }).waitFor()],
    notebook: [file(`${outputs}/book2.ipynb`), (p) => p.getByRole("heading", { name: "Title" }).waitFor()],
    pdf: [file(`${outputs}/paper2.pdf`), (p) => p.getByText("Fine").waitFor({ state: "attached" })],
    page: [file(`${outputs}/plain.html`), (p) => p.frameLocator("iframe.frame").getByText("Fine").waitFor()],
    editor: [file("/mnt/user-data/workspace/axe.txt", "&edit=true"), async (p) => {
      await text(p).getByText("a text").waitFor();
    }],
    "new file": [`/ui/threads/${thread}/files`, async (p) => {
      await p.getByRole("button", { name: "New file…" }).click();
      await p.getByRole("dialog").waitFor();
    }],
    contexts: [`/ui/threads/${thread}/contexts?context=${made.context_id}`, (p) => p.getByRole("region", { name: "One context" }).waitFor()],
    agent: [`/ui/threads/${thread}/agent`, (p) => p.getByRole("list", { name: "Tools to register" }).waitFor()],
    // The last one: a page with changes that are not saved asks before it goes.
    review: [file("/mnt/user-data/workspace/axe.txt", "&edit=true"), async (p) => {
      await text(p).click();
      await p.keyboard.type("more");
      await p.getByRole("button", { name: "Review changes" }).click();
      await p.locator("ins").first().waitFor();
    }],
  });
  await api("DELETE", `/api/threads/${thread}/contexts/${made.context_id}`);
  assert.deepEqual(found, []);
});
