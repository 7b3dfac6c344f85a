// An identity provider for login.test.mjs: oidc-provider with one public client, and a page that takes any name. What it does can
// be changed by POST /test, as JSON.
import { createServer } from "node:http";
import Provider from "oidc-provider";

/** What tests change: seconds of an ID token, whether refresh tokens are issued, and whether the token endpoint is away. */
const mode = { ttl: 3600, refresh: true, away: false };
const roles = { ann: ["agents"], root: ["skerry-admins"], vera: ["auditors"], nobody: [] };

const server = createServer();
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
const issuer = `http://127.0.0.1:${server.address().port}`;

const provider = new Provider(issuer, {
  clients: [{
    client_id: "skerry-console", token_endpoint_auth_method: "none", application_type: "native", response_types: ["code"],
    grant_types: ["authorization_code", "refresh_token"], redirect_uris: ["http://127.0.0.1/ui/login/done"],
  }],
  claims: { openid: ["sub"], skerry: ["preferred_username", "roles"] },
  conformIdTokenClaims: false, // they belong into the ID token
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, preferred_username: id, roles: roles[id] ?? [] }) }),
  issueRefreshToken: () => mode.refresh,
  features: { devInteractions: { enabled: false } },
  interactions: { url: (_, { uid }) => `/interaction/${uid}` },
  ttl: { IdToken: () => mode.ttl, AccessToken: 3600, Grant: 3600, Interaction: 600, Session: 3600, RefreshToken: 3600, AuthorizationCode: 60 },
  cookies: { keys: ["of the tests"] },
  pkce: { required: () => true },
});
provider.on("server_error", (_, err) => console.error(err));
const callback = provider.callback();

const form = `<!doctype html><html lang="en"><title>Who are you?</title><form method="post">
<label>Name <input name="user"></label> <button name="do" value="in">Continue</button> <button name="do" value="no">Refuse</button></form></html>`;

async function body(req) {
  let text = "";
  for await (const part of req) text += part;
  return text;
}

/** Logs in whoever says a name, and consents to all that is asked for. */
async function interact(req, res) {
  const details = await provider.interactionDetails(req, res);
  if (req.method === "GET") {
    res.setHeader("Content-Type", "text/html; charset=utf-8");
    return void res.end(form);
  }
  const sent = new URLSearchParams(await body(req));
  const accountId = sent.get("user");
  if (sent.get("do") === "no") return provider.interactionFinished(req, res, { error: "access_denied", error_description: accountId });
  const grant = new provider.Grant({ accountId, clientId: details.params.client_id });
  grant.addOIDCScope(details.params.scope);
  return provider.interactionFinished(req, res, { login: { accountId, remember: false }, consent: { grantId: await grant.save() } });
}

server.on("request", (req, res) => {
  const answer = async () => {
    if (req.url === "/test") {
      Object.assign(mode, JSON.parse(await body(req)));
      return void res.end();
    }
    if (mode.away && req.url === "/token") return void req.socket.destroy();
    return req.url.startsWith("/interaction/") ? interact(req, res) : callback(req, res);
  };
  answer().catch((err) => {
    console.error(err);
    res.statusCode = 500;
    res.end();
  });
});
console.log(`issuer on ${issuer}`);
process.on("SIGTERM", () => process.exit(0));
