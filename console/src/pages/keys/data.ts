import type { Role } from "../../session/session";

/** GET /api/keys: a key without its secret. */
export interface Key {
  id: string;
  name: string;
  tenant: string;
  user: string;
  role: Role | "pack";
  act_for: boolean;
  capabilities?: string[];
  /** The only threads that it is good for. */
  threads?: string[];
  created_at: string;
  expires_at?: string;
  last_used_at?: string;
}

export const keysKey = ["keys"] as const;
