import { QueryClient } from "@tanstack/react-query";

/** What the server answered. The client itself sends a failed request again, so nothing is retried here. */
export const queries = new QueryClient({
  defaultOptions: { queries: { retry: false, staleTime: 2_000, refetchOnWindowFocus: true }, mutations: { retry: false } },
});
