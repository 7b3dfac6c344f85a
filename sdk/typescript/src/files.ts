import * as constants from "./constants.js";
import type { Edited, FileEntry, FileListing, FileText, GrepMatches, Transferred, Unpacked, WatchedChange, Written } from "./models.js";
import type { ArchiveFormat, GrepOptions } from "./queries.js";
import { decoded, toBase64 } from "./sse.js";
import { path, type Bytes, type CallOptions, type Request, type Transport } from "./transport.js";

/** A file's bytes as they come. `etag` names this version of the file, for `ifMatch`. */
export interface FileContent extends AsyncIterable<Uint8Array> {
  readonly etag: string;
}

/** What `put` wants of the file that is there, else it throws a PreconditionError and writes nothing. */
export interface PutConditions {
  /** The file has to be this version: the etag of `get` or of a write; `*`: any. */
  ifMatch?: string;
  /** No file may be there. */
  ifAbsent?: boolean;
}

/**
 * The files of a thread. Paths are those inside of the sandbox: /mnt/user-data/… can be written; /mnt/skills/…,
 * /mnt/plugins/… and /mnt/code-api/… can be read. None of these calls starts a sandbox.
 */
export class Files {
  readonly #t: Transport;

  constructor(
    t: Transport,
    readonly threadId: string,
  ) {
    this.#t = t;
  }

  #path(...more: string[]): string {
    return path("threads", this.threadId, "files", ...more);
  }

  #get<T>(part: string[], query: Request["query"], o: CallOptions): Promise<T> {
    return this.#t.call({ method: "GET", path: this.#path(...part), query: query ?? {} }, o);
  }

  /** A file by lines: it passes over offset of them and gives limit, 2000 when absent. */
  read(path: string, range: { offset?: number; limit?: number } = {}, o: CallOptions = {}): Promise<FileText> {
    return this.#get([], { path, ...range }, o);
  }

  /** Writes a whole file of at most some MiB; folders above it are made. */
  write(path: string, data: string | Uint8Array, o: CallOptions = {}): Promise<Written> {
    return this.#t.call({ method: "PUT", path: this.#path(), body: { path, ...content(data) } }, o);
  }

  /** Writes behind what a file has. */
  append(path: string, data: string | Uint8Array, o: CallOptions = {}): Promise<Written> {
    return this.#t.call({ method: "PUT", path: this.#path(), body: { path, ...content(data), append: true }, kind: "once" }, o);
  }

  /** Replaces a text: conflict when it is not there, or there more than once unless replaceAll. */
  edit(path: string, old: string, replacement: string, how: { replaceAll?: boolean } = {}, o: CallOptions = {}): Promise<Edited> {
    const body = { path, old, new: replacement, replace_all: how.replaceAll ?? false };
    return this.#t.call({ method: "POST", path: this.#path("edit"), body }, o);
  }

  list(path: string, depth = 1, o: CallOptions = {}): Promise<FileListing> {
    return this.#get(["list"], { path, depth }, o);
  }

  /** Files below a folder by a pattern such as src/*.py; two stars are any number of folders. */
  glob(path: string, pattern: string, o: CallOptions = {}): Promise<FileListing> {
    return this.#get(["glob"], { path, pattern }, o);
  }

  /** Lines in the files below a folder. */
  grep(path: string, options: GrepOptions, o: CallOptions = {}): Promise<GrepMatches> {
    return this.#get(["grep"], { path, ...options }, o);
  }

  stat(path: string, o: CallOptions = {}): Promise<FileEntry> {
    return this.#get(["stat"], { path }, o);
  }

  /** Deletes a file, or with recursive a folder. */
  async remove(path: string, how: { recursive?: boolean } = {}, o: CallOptions = {}): Promise<void> {
    await this.#t.call({ method: "DELETE", path: this.#path(), query: { path, recursive: how.recursive } }, o);
  }

  /** Makes a folder and those above it. */
  mkdir(path: string, o: CallOptions = {}): Promise<FileEntry> {
    return this.#t.call({ method: "POST", path: this.#path("mkdir"), body: { path } }, o);
  }

  /** Renames: conflict when the new name exists. */
  move(from: string, to: string, o: CallOptions = {}): Promise<FileEntry> {
    return this.#t.call({ method: "POST", path: this.#path("move"), body: { from, to } }, o);
  }

  /** A file's bytes, however many, as they come. */
  async get(path: string, o: CallOptions = {}): Promise<FileContent> {
    const { answer, chunks } = await this.#t.open({ method: "GET", path: this.#path("content"), query: { path } }, o);
    return Object.assign(whole(chunks, Number(answer.headers.get("content-length") ?? -1)), { etag: answer.headers.get("etag") ?? "" });
  }

  /** A file's bytes at once. */
  async bytes(path: string, o: CallOptions = {}): Promise<Uint8Array> {
    const parts: Uint8Array[] = [];
    for await (const part of await this.get(path, o)) parts.push(part);
    return new Uint8Array(await new Blob(parts as BlobPart[]).arrayBuffer());
  }

  /**
   * Writes a file's bytes, however many. A ReadableStream is sent once, all else again when it has to be. With a condition it is sent
   * again only when nothing was done: what the request wrote itself would not fit any more.
   */
  async put(path: string, data: Bytes, o: CallOptions & PutConditions = {}): Promise<Written> {
    const { ifMatch, ifAbsent, ...call } = o;
    if ("ifMatch" in o && !ifMatch) throw new TypeError("ifMatch is empty: the write would have no condition");
    const headers = { ...(ifMatch ? { "If-Match": ifMatch } : {}), ...(ifAbsent ? { "If-None-Match": "*" } : {}) };
    const kind = ifMatch || ifAbsent ? "once" : "safe";
    return this.#send({ method: "PUT", path: this.#path("content"), query: { path }, content: data, headers, kind }, call);
  }

  /** Writes many files in one request. A path that is not absolute is below /mnt/user-data/uploads. Each has a result, in order. */
  async upload(files: { path: string; data: string | Uint8Array | Blob }[], o: CallOptions = {}): Promise<Transferred[]> {
    const form = new FormData();
    for (const f of files) form.append("files", f.data instanceof Blob ? f.data : new Blob([f.data as BlobPart]), f.path);
    return (await this.#send<{ items: Transferred[] }>({ method: "POST", path: this.#path("upload"), content: form }, o)).items;
  }

  /** Reads many files, at most 32 MiB together. Each has a result, in order; `data` is its bytes. */
  async download(paths: string[], o: CallOptions = {}): Promise<(Transferred & { data: Uint8Array | undefined })[]> {
    const { items } = await this.#t.call<{ items: Transferred[] }>({ method: "POST", path: this.#path("download"), body: { paths } }, o);
    return items.map((f) => ({ ...f, data: f.content === undefined ? undefined : decoded(f.content, f.encoding) }));
  }

  /** All that is in a folder, as one archive with names relative to it, as it comes. `leftOut` are its links and special files, which are not in it. */
  async getArchive(folder: string, format: ArchiveFormat = "tar.gz", o: CallOptions = {}): Promise<{ chunks: AsyncIterable<Uint8Array>; leftOut: number }> {
    const { answer, chunks } = await this.#t.open({ method: "GET", path: this.#path("archive"), query: { path: folder, format } }, o);
    return { chunks, leftOut: Number(answer.headers.get(constants.headerLeftOut) ?? 0) };
  }

  /**
   * Writes what is in a tar, tar.gz or zip archive into a folder, which is made. Nothing is written of one that has links, paths that
   * lead out, or more than there is room for.
   */
  putArchive(folder: string, archive: Bytes, o: CallOptions = {}): Promise<Unpacked> {
    return this.#send({ method: "PUT", path: this.#path("archive"), query: { path: folder }, content: archive }, o);
  }

  /**
   * What changes in a folder, as it changes. The first change is `started`, of the folder itself: from then on all is told. It ends
   * when the thread's sandbox has ended. One that was cut off is an error: list the folder and watch again.
   */
  async *watch(folder: string, how: { recursive?: boolean } = {}, o: CallOptions = {}): AsyncGenerator<WatchedChange, void, void> {
    const query = { path: folder, recursive: how.recursive ?? true };
    for await (const m of this.#t.events({ method: "GET", path: this.#path("watch"), query }, o, this.#t.timeoutMs)) {
      if (m.event === constants.eventEnd) return;
      if (m.event === constants.eventStarted) yield { path: folder, change: constants.eventStarted, is_dir: true };
      if (m.event === constants.eventChange) yield JSON.parse(m.data) as WatchedChange;
    }
  }

  /** Sends what takes as long as it takes: a call without a deadline of its own has an hour. */
  #send<T>(r: Request, o: CallOptions): Promise<T> {
    return this.#t.call(r, { timeoutMs: constants.transferMs, ...o });
  }
}

function content(data: string | Uint8Array): { content: string; encoding: string } {
  return typeof data === "string" ? { content: data, encoding: "utf-8" } : { content: toBase64(data), encoding: "base64" };
}

/** Ends with an error when fewer bytes come than were said to. */
async function* whole(chunks: AsyncIterable<Uint8Array>, wanted: number): AsyncGenerator<Uint8Array, void, void> {
  let came = 0;
  for await (const c of chunks) {
    came += c.byteLength;
    yield c;
  }
  if (wanted >= 0 && came < wanted) throw new Error(`only ${came} of ${wanted} bytes came`);
}
