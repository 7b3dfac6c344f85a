// Screenshots of each page in both themes, into a folder: make console-shots.
import { api, browser, exec, login, open, put, adminKey, server } from "./browser.mjs";

const out = process.argv[2];
const thread = "support-ticket-88";

await exec(thread, "python3 - <<'E'\nfor step in ('fetch', 'clean', 'summarise'):\n    print(step, 'done')\nE\nprintf 'customer,open\\nada,3\\ngrace,1\\n' > /mnt/user-data/outputs/report.csv");
await exec(thread, "python3 -c 'import missing_module'");
await exec(thread, "ls -la /mnt/user-data/outputs");
await put(thread, "/mnt/user-data/workspace/notes.md", "# Ticket 88\n\nThe export lacks two columns. The report is in outputs/report.csv.\n");
await api("PUT", `/api/threads/${thread}/sandbox`, { body: { labels: { team: "support", priority: "high" } } });
for (const [id, labels] of [["research-2231", { team: "research" }], ["research-2232", { team: "research" }], ["nightly-report", { team: "finance", schedule: "nightly" }]]) {
  await exec(id, "true");
  await api("PUT", `/api/threads/${id}/sandbox`, { body: { labels } });
}
await api("POST", "/api/threads/research-2232/sandbox/pause");
await api("POST", "/api/threads/nightly-report/sandbox/hibernate");
await put("draft-letter", "/mnt/user-data/workspace/letter.txt", "Dear");

const pages = {
  threads: ["/ui/threads", (p) => p.getByRole("link", { name: thread }).waitFor()],
  exec: [`/ui/threads/${thread}`, async (p) => {
    await p.getByRole("link", { name: /missing_module/ }).click();
    await p.locator(".output .stderr").waitFor();
  }],
  terminal: [`/ui/threads/${thread}/terminal`, async (p) => {
    await p.getByRole("button", { name: "Start a terminal" }).click();
    await p.locator(".xterm-rows").getByText("$").first().waitFor();
    await p.keyboard.type("python3 -c 'print(6 * 7)'; ls /mnt\n");
    await p.locator(".xterm-rows").getByText("user-data").last().waitFor();
  }],
  files: [`/ui/threads/${thread}/files?path=/mnt/user-data/workspace/notes.md`, (p) => p.getByText("# Ticket 88").waitFor()],
};

for (const colorScheme of ["light", "dark"]) {
  const { page, close } = await open({ colorScheme, viewport: { width: 1120, height: 640 } });
  await login(page, adminKey);
  for (const [name, [path, ready]] of Object.entries(pages)) {
    await page.goto(server + path);
    await ready(page);
    await page.waitForTimeout(400);
    await page.screenshot({ path: `${out}/${name}-${colorScheme}.png` });
    if (name === "terminal") await page.getByRole("button", { name: "End terminal" }).click();
  }
  await close();
}
await browser.close();
