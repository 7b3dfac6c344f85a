export const states = ["starting", "running", "paused", "stopping", "lost", "hibernated"] as const;
export type StateName = (typeof states)[number];
