export const states = ["starting", "running", "paused", "stopping", "lost", "hibernated"] as const;
export type StateName = (typeof states)[number];

/** How long ago a thread was active. */
export const ages = ["1h", "1d", "7d", "idle1d", "idle30d"] as const;
export type Age = (typeof ages)[number];

/** How much a thread's files take at least, in MiB. */
export const sizes = [1, 100, 1024, 10240] as const;
export type Size = (typeof sizes)[number];
