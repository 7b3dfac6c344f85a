/** How many routes are remembered that a server calls deprecated. */
const maxWarned = 1000;

const warned = new Set<string>();

/** Warns once of a route that the server calls deprecated (RFC 9745). Its header Link names the route. */
export function warnDeprecated(method: string, path: string, headers: Headers): void {
  const since = headers.get("Deprecation");
  if (since === null) return;
  const link = headers.get("Link");
  const route = link ?? method;
  if (warned.has(route) || warned.size >= maxWarned) return;
  warned.add(route);
  const sunset = headers.get("Sunset");
  console.warn(`skerry: the server deprecates ${method} ${path}${sunset === null ? "" : `, which may be gone from ${sunset} on`}${link === null ? "" : `: ${link}`}`);
}
