// At the end of the start-up file of a process that waits for its program: see Runner.Ahead. Deno has no
// call that reads a descriptor that it did not open itself, but for this one.
if (Deno.env.get("SKERRY_STANDBY")) {
  Deno.env.delete("SKERRY_STANDBY");
  const { Socket } = await import("node:net");
  const socket = new Socket({ fd: 3, readable: true, writable: true, allowHalfOpen: true });
  socket.setEncoding("utf8");
  let text = "";
  for await (const part of socket.iterator({ destroyOnReturn: false })) text += part;
  if (text === "") Deno.exit(0);
  for (const line of text.split("\0").slice(0, -1)) {
    const at = line.indexOf("=");
    const name = line.slice(0, at), value = line.slice(at + 1);
    if (Deno.env.get(name) !== value) Deno.env.set(name, value);
  }
  await new Promise((written) => socket.write("\n", written));
  await new Promise((closed) => socket.once("close", closed).destroy());
}
