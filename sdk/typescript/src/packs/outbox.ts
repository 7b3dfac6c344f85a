import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { PackMessageSchema, type PackMessage } from "./v1/packs_pb.js";

export type Outgoing = NonNullable<MessageInitShape<typeof PackMessageSchema>["message"]>;

/** The messages of a stream that wait to be sent. The stream takes them one after another, as fast as the server reads. */
export class Outbox implements AsyncIterable<PackMessage> {
  readonly #waiting: { message: PackMessage; sent: (all: boolean) => void }[] = [];
  #ended = false;
  #wake: () => void = () => undefined;

  get length(): number {
    return this.#waiting.length;
  }

  /** Returns whether the message was written. It is false when the stream ends before. */
  put(message: Outgoing): Promise<boolean> {
    if (this.#ended) return Promise.resolve(false);
    return new Promise((sent) => {
      this.#waiting.push({ message: create(PackMessageSchema, { message }), sent });
      this.#wake();
    });
  }

  /** Ends the stream behind what waits. */
  end(): void {
    this.#ended = true;
    this.#wake();
  }

  /** Drops what waits. */
  drop(): void {
    this.end();
    for (const one of this.#waiting.splice(0)) one.sent(false);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<PackMessage, void, void> {
    for (;;) {
      const next = this.#waiting.shift();
      if (next !== undefined) {
        let written = false;
        try {
          yield next.message;
          written = true;
        } finally {
          next.sent(written);
        }
      } else if (this.#ended) {
        return;
      } else {
        await new Promise<void>((wake) => (this.#wake = wake));
      }
    }
  }
}
