// A server that answers each request by the next of its steps, and the last one for ever.
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export type Step = (res: ServerResponse, req: IncomingMessage) => void;

export interface Seen {
  method: string;
  url: string;
  headers: IncomingMessage["headers"];
  body: string;
}

export interface Scripted {
  url: string;
  seen: Seen[];
  close: () => Promise<void>;
}

export async function scripted(...steps: Step[]): Promise<Scripted> {
  const seen: Seen[] = [];
  const web = createServer((req, res) => {
    const parts: Buffer[] = [];
    req.on("data", (d: Buffer) => parts.push(d));
    req.on("end", () => {
      const step = steps[Math.min(seen.length, steps.length - 1)];
      seen.push({ method: req.method ?? "", url: req.url ?? "", headers: req.headers, body: Buffer.concat(parts).toString() });
      step?.(res, req);
    });
  });
  await new Promise<void>((done) => web.listen(0, "127.0.0.1", done));
  return {
    url: `http://127.0.0.1:${(web.address() as AddressInfo).port}`,
    seen,
    close: () =>
      new Promise((done) => {
        web.close(() => done());
        web.closeAllConnections();
      }),
  };
}

export function says(status: number, body: unknown, headers: Record<string, string> = {}): Step {
  return (res) => {
    res.writeHead(status, { "Content-Type": "application/json", ...headers });
    res.end(typeof body === "string" ? body : JSON.stringify(body));
  };
}

export function problem(status: number, code: string, more: object = {}, headers: Record<string, string> = {}): Step {
  return says(status, { status, code, detail: "what is wrong", ...more }, headers);
}

/** Ends the connection in place of an answer. */
export const cut: Step = (res) => res.socket?.destroy();

/** Never answers. */
export const hang: Step = () => undefined;

/** A stream of these; without an exit the connection breaks. */
export function events(...list: string[]): Step {
  return (res) => {
    res.writeHead(200, { "Content-Type": "text/event-stream" });
    res.write(list.map((e) => e + "\n\n").join(""), () => {
      if (list.at(-1)?.includes("event: exit")) res.end();
      else setTimeout(() => res.socket?.destroy(), 50); // what was written has to arrive
    });
  };
}

export const started = 'id: 1\nevent: started\ndata: {"exec_id":"e1"}';
export const hello = 'id: 2\nevent: stdout\ndata: {"data":"hello "}';
export const world = 'id: 3\nevent: stdout\ndata: {"data":"d29ybGT/","encoding":"base64"}';
export const exit = 'id: 4\nevent: exit\ndata: {"exec_id":"e1","status":"exited","exit_code":0,"stdout":"hello world","files":[]}';
