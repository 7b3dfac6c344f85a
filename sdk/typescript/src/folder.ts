import type { VirtualSkill } from "./models.js";

// Limits of the server, so that a wrong folder is noticed before it is read.
const maxFiles = 512;
const maxBytes = 16 << 20;
/** What editors, systems and tools leave in folders. */
const leftOut = new Set(["__pycache__", "node_modules", ".git", ".DS_Store", "__MACOSX", "Thumbs.db", "desktop.ini"]);

/** A skill's folder on this machine, as it is attached to a thread. The folder's name is the skill's. Not in browsers. */
export async function skillOf(folder: string): Promise<VirtualSkill> {
  const { lstat, readdir, readFile } = await import("node:fs/promises");
  const { basename, join, resolve } = await import("node:path");
  const root = resolve(folder);
  const files: Record<string, string> = {};
  const binary: Record<string, string> = {};
  let count = 0;
  let size = 0;

  const take = async (name: string): Promise<void> => {
    const file = join(root, name);
    const info = await lstat(file);
    if (info.isSymbolicLink()) throw new Error(`${file} is a symbolic link: put the file itself in its place`);
    if (info.isDirectory()) return walk(name);
    if (!info.isFile()) return;
    count += 1;
    size += info.size;
    if (count > maxFiles) throw new Error(`${folder} has more than ${maxFiles} files`);
    if (size > maxBytes) throw new Error(`the files of ${folder} have more than ${maxBytes} bytes`);
    const data = await readFile(file);
    try {
      files[name] = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
    } catch {
      binary[name] = data.toString("base64");
    }
  };
  const walk = async (at: string): Promise<void> => {
    for (const name of (await readdir(join(root, at))).sort()) {
      if (!leftOut.has(name) && !name.endsWith(".pyc")) await take(at === "" ? name : `${at}/${name}`);
    }
  };
  await walk("");
  if (files["SKILL.md"] === undefined) throw new Error(`${folder} is no skill's folder: it has no SKILL.md`);
  return { name: basename(root), files, binary_files: binary, replace: true };
}
