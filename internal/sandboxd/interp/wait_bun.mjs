// At the end of the start-up file of a process that waits for its program: see Runner.Ahead. It stops
// here, before anything reads the program, until its run is there or nobody needs it any more. Not by
// node:fs: with it loaded, bun runs what nextTick is given after the microtasks, and not before them.
if (process.env.SKERRY_STANDBY) {
  delete process.env.SKERRY_STANDBY;
  const decoder = new TextDecoder();
  let text = "", ended, closed;
  const end = new Promise((resolve) => { ended = resolve; });
  const close = new Promise((resolve) => { closed = resolve; });
  const socket = await Bun.connect({
    fd: 3,
    allowHalfOpen: true,
    socket: {
      data: (_, part) => { text += decoder.decode(part, { stream: true }); },
      end: () => ended(),
      error: () => ended(),
      close: () => { ended(); closed(); },
    },
  });
  await end;
  if (text === "") process.exit(0);
  for (const line of text.split("\0").slice(0, -1)) {
    const at = line.indexOf("=");
    const name = line.slice(0, at), value = line.slice(at + 1);
    if (process.env[name] !== value) process.env[name] = value;
  }
  socket.end("\n");
  await close;

  // What bun starts without saying in which environment gets the one that bun was started in, not
  // process.env. That is the environment from before the run, so ours takes its place.
  const env = { ...process.env };
  const inEnv = (start) => {
    const replaced = new Proxy(start, {
      apply(_, self, args) {
        const at = Array.isArray(args[0]) ? 1 : 0;
        const options = args[at];
        if (options === undefined ? at === 1 : typeof options === "object" && options?.env === undefined) {
          args[at] = { ...options, env };
        }
        try {
          return Reflect.apply(start, self, args);
        } catch (err) {
          if (err instanceof Error) Error.captureStackTrace(err, replaced);
          throw err;
        }
      },
    });
    return replaced;
  };
  Bun.spawn = inEnv(Bun.spawn);
  Bun.spawnSync = inEnv(Bun.spawnSync);
  globalThis.Worker = new Proxy(Worker, {
    construct(worker, [url, options], target) {
      const given = options?.env === undefined ? { ...options, env } : options;
      return Reflect.construct(worker, [url, given], target);
    },
  });
}
