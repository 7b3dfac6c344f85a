// A server of packs that does what a script says, one script for each stream, and the last one for ever.
import { createServer, type Http2Server } from "node:http2";
import type { AddressInfo, Socket } from "node:net";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { PackService, ServerMessageSchema, WelcomeSchema, type PackMessage, type ServerMessage } from "../src/packs/v1/packs_pb.js";

type Sent = NonNullable<MessageInitShape<typeof ServerMessageSchema>["message"]>;
export type Received = PackMessage["message"];

/** One stream, as the server has it. */
export interface Stream {
  readonly authorization: string | null;
  send(message: Sent): void;
  /** The next message that is no heartbeat; undefined: the pack has closed the stream. */
  next(): Promise<Received | undefined>;
}

export type Script = (stream: Stream) => Promise<unknown>;

export interface PackServer {
  url: string;
  close(): Promise<void>;
}

export async function packServer(...scripts: Script[]): Promise<PackServer> {
  let streams = 0;
  const web: Http2Server = createServer(
    connectNodeAdapter({
      routes: (router) =>
        router.service(PackService, {
          async *connect(messages, context) {
            const script = scripts[Math.min(streams++, scripts.length - 1)];
            const waiting: ServerMessage[] = [];
            let wake = () => {};
            let ended = false;
            const from = messages[Symbol.asyncIterator]();
            const end = script?.({
              authorization: context.requestHeader.get("Authorization"),
              send: (message) => {
                waiting.push(create(ServerMessageSchema, { message }));
                wake();
              },
              next: async () => {
                for (;;) {
                  const { done, value } = await from.next();
                  if (done === true) return undefined;
                  if ((value as PackMessage).message.case !== "heartbeat") return (value as PackMessage).message;
                }
              },
            }).finally(() => {
              ended = true;
              wake();
            });
            end?.catch(() => undefined); // it is thrown below
            while (!ended || waiting.length > 0) {
              const next = waiting.shift();
              if (next !== undefined) yield next;
              else await new Promise<void>((resolve) => (wake = resolve));
            }
            await end;
          },
        }),
    }),
  );
  const sockets = new Set<Socket>();
  web.on("connection", (s: Socket) => {
    sockets.add(s);
    s.on("close", () => sockets.delete(s));
  });
  await new Promise<void>((done) => web.listen(0, "127.0.0.1", done));
  return {
    url: `http://127.0.0.1:${(web.address() as AddressInfo).port}`,
    close: async () => {
      for (const s of sockets) s.destroy();
      await new Promise<void>((done) => web.close(() => done()));
    },
  };
}

/** Takes the pack, and returns what it has said. */
export async function welcome(stream: Stream, limits: MessageInitShape<typeof WelcomeSchema> = {}) {
  const open = await stream.next();
  stream.send({ case: "challenge", value: { serverId: "s", nonce: new Uint8Array(32), namespace: "skerry-pack@v1" } });
  const register = await stream.next();
  if (open?.case !== "open" || register?.case !== "register") throw new Error(`the pack sent ${open?.case}, ${register?.case}`);
  const large = BigInt(1 << 24);
  stream.send({ case: "welcome", value: { heartbeatSeconds: 15, callWindow: large, connectionWindow: large, maxPartBytes: 1 << 18, maxResultBytes: large, ...limits } });
  return { open: open.value, manifest: register.value.manifest };
}

/** Calls a tool. */
export function execute(stream: Stream, id: number, toolName: string, input: object = {}, timeoutMs = 0): void {
  const inputJson = new TextEncoder().encode(JSON.stringify(input));
  stream.send({ case: "execute", value: { request: { requestId: BigInt(id), toolName, inputJson, timeoutMs: BigInt(timeoutMs) } } });
}

/** The next result of a stream, put together of its parts, and their lengths. */
export async function resultOf(stream: Stream): Promise<{ id: number; text: string; parts: number[]; code?: number }> {
  let text = "";
  const parts: number[] = [];
  for (;;) {
    const message = await stream.next();
    if (message === undefined) throw new Error("the pack has closed the stream");
    if (message.case !== "result") continue;
    const { requestId, part, last, error } = message.value;
    const id = Number(requestId);
    if (error !== undefined) return { id, text: error.message, parts, code: error.code };
    parts.push(part.length);
    text += new TextDecoder().decode(part);
    if (last) return { id, text, parts };
  }
}
