// A browser with a watch: it notes what scripts ran, which other hosts were asked, and which rules of the page's policy were broken.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

export const server = process.env.SKERRY_SERVER;
export const openServer = process.env.SKERRY_OPEN_SERVER;
// A server at which people log in by an identity provider, and that provider.
export const loginServer = process.env.SKERRY_LOGIN_SERVER;
export const issuer = process.env.SKERRY_ISSUER;
export const adminKey = process.env.SKERRY_ADMIN_KEY;
const axeSource = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export const browser = await chromium.launch({ executablePath: process.env.SKERRY_CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });

/** A page of a browser of its own, and what was seen of it. */
export async function open(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, acceptDownloads: true, ...options });
  const seen = { ran: [], elsewhere: [], violations: [], errors: [] };
  await context.exposeBinding("ran", (_, what) => seen.ran.push(what));
  const page = await context.newPage();
  context.on("page", (p) => seen.ran.push(`a window: ${p.url()}`));
  context.on("request", (r) => {
    const url = new URL(r.url());
    if (!["blob:", "data:", "about:"].includes(url.protocol) && ![server, openServer, loginServer].includes(url.origin)) seen.elsewhere.push(r.url());
  });
  page.on("dialog", (d) => {
    seen.ran.push(`dialog: ${d.message()}`);
    void d.dismiss();
  });
  page.on("console", (m) => {
    if (/Content Security Policy|Content-Security-Policy/i.test(m.text())) seen.violations.push(m.text());
  });
  page.on("pageerror", (e) => seen.errors.push(e.message));
  page.setDefaultTimeout(20_000);
  return { context, page, seen, close: () => context.close() };
}

/** Asks the server without a browser. */
export async function api(method, path, { key = adminKey, body, raw, type } = {}) {
  const headers = { Authorization: `Bearer ${key}` };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (raw !== undefined) headers["Content-Type"] = type ?? "application/octet-stream";
  const answer = await fetch(server + path, { method, headers, body: raw ?? (body === undefined ? undefined : JSON.stringify(body)) });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
  return text === "" ? undefined : JSON.parse(text);
}

export async function keyFor(user, role, more = {}) {
  return (await api("POST", "/api/keys", { body: { name: `${user} ${role}`, user, role, ...more } })).secret;
}

/** Deletes the threads of another user: test.sh sees those of its own user alone. */
export async function forget(key) {
  for (const t of (await api("GET", "/api/threads?limit=1000", { key })).items) await api("DELETE", `/api/threads/${encodeURIComponent(t.thread_id)}`, { key });
}

export const exec = (thread, command, more = {}) => api("POST", `/api/threads/${thread}/exec`, { body: { command, ...more } });
export const put = (thread, path, bytes, key = adminKey) => api("PUT", `/api/threads/${thread}/files/content?path=${encodeURIComponent(path)}`, { raw: bytes, key });

export async function login(page, key, path = "/ui/", keep = true) {
  await page.goto(server + path);
  await page.getByLabel("API key").fill(key);
  if (keep) await page.getByText("Keep for this tab").click();
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("button", { name: "Log out" }).waitFor();
}

/** A page that is logged in. What it did that no page may do fails the test at its end. */
export async function inside(run, { key = adminKey, path = "/ui/", ...options } = {}) {
  const it = await open(options);
  try {
    await login(it.page, key, path);
    await run(it.page, it);
    assert.deepEqual(it.seen, { ran: [], elsewhere: [], violations: [], errors: [] });
  } finally {
    await it.close();
  }
}

export const attack = (what) => `<img src=x onerror="ran('${what}')"><svg onload="ran('${what}')"></svg><script>ran('${what}')</script>`;

/** The watch sees that a text runs when a page takes it as HTML. */
export async function control(text) {
  const { page, seen, close } = await open();
  await page.setContent(`<body>${text}</body>`);
  await page.waitForTimeout(300);
  await close();
  return seen.ran;
}

/** What axe finds on some pages, in both themes and two widths, and what is wider than the page. */
export async function looksGood(pages, key = adminKey) {
  const found = [];
  for (const colorScheme of ["light", "dark"]) {
    for (const width of [1280, 390]) {
      const it = await open({ colorScheme, viewport: { width, height: 844 } });
      await login(it.page, key);
      for (const [name, [path, ready]] of Object.entries(pages)) {
        await it.page.goto(server + path);
        await ready(it.page);
        found.push(...(await axe(it.page)).map((f) => `${colorScheme}, ${width} px, ${name}: ${f}`));
        const wide = await it.page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        if (wide > 0) found.push(`${colorScheme}, ${width} px, ${name}: ${wide} px wider than the page`);
      }
      found.push(...it.seen.violations, ...it.seen.errors);
      await it.close();
    }
  }
  return found;
}

/** What axe finds on the page, as text. */
export async function axe(page) {
  // A colour on its way to another one is neither.
  await page.evaluate(() => Promise.all(document.getAnimations().flatMap((a) => (a instanceof CSSTransition ? [a.finished.catch(() => undefined)] : []))));
  await page.evaluate(axeSource);
  const { violations, passes } = await page.evaluate(() =>
    globalThis.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"], preload: false }));
  if (passes.length < 5) throw new Error("axe looked at nothing");
  return violations.map((v) => `${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map((n) => `${n.html.slice(0, 160)} ${n.any.map((c) => c.message).join("; ")}`).join(" | ")}`);
}
