import { useQueryClient } from "@tanstack/react-query";

/** Asks for all of this page anew. */
export function useFresh(): () => Promise<void> {
  const known = useQueryClient();
  return () => known.invalidateQueries({ queryKey: ["tools"] });
}
