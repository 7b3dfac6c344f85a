// At the end of the start-up file of a process that waits for its program: see Runner.Ahead. It stops
// here, before anything reads the program, until its run is there or nobody needs it any more.
import { closeSync, readSync, writeSync } from "node:fs";
if (process.env.SKERRY_STANDBY) {
  delete process.env.SKERRY_STANDBY;
  const parts = [];
  const part = Buffer.alloc(1 << 16);
  for (let n; (n = readSync(3, part)) > 0; ) parts.push(Buffer.from(part.subarray(0, n)));
  if (parts.length === 0) process.exit(0);
  for (const line of Buffer.concat(parts).toString().split("\0").slice(0, -1)) {
    const at = line.indexOf("=");
    const name = line.slice(0, at), value = line.slice(at + 1);
    if (process.env[name] !== value) process.env[name] = value;
  }
  writeSync(3, "\n");
  closeSync(3);
}
