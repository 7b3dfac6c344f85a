// An MCP server over HTTP whose tools a test says, and can change. With `wantsLogin`, it is an authorization server, too.
import { createHash, randomUUID } from "node:crypto";
import { createServer } from "node:http";

const body = async (req) => {
  let text = "";
  for await (const part of req) text += part;
  return text;
};

/** Starts one. `call` gets a tool's name and its arguments, and returns a CallToolResult. */
export async function toolServer({ tools, call = () => ({ content: [{ type: "text", text: "done" }] }), wantsLogin = false }) {
  const codes = new Map();
  const tokens = new Set();
  const it = { tools, called: [] };
  const json = (res, status, value, headers = {}) => res.writeHead(status, { "Content-Type": "application/json", ...headers }).end(JSON.stringify(value));

  const authorization = async (req, res, url) => {
    if (url.pathname.startsWith("/.well-known/oauth-protected-resource")) return json(res, 200, { resource: `${it.url}`, authorization_servers: [it.origin] });
    if (url.pathname.startsWith("/.well-known/oauth-authorization-server")) {
      return json(res, 200, {
        issuer: it.origin, authorization_endpoint: `${it.origin}/authorize`, token_endpoint: `${it.origin}/token`, registration_endpoint: `${it.origin}/register`,
        response_types_supported: ["code"], grant_types_supported: ["authorization_code"], code_challenge_methods_supported: ["S256"], token_endpoint_auth_methods_supported: ["none", "client_secret_post"],
      });
    }
    if (url.pathname === "/register") return json(res, 201, { ...JSON.parse(await body(req)), client_id: "client-1", client_secret: "registered", token_endpoint_auth_method: "client_secret_post" });
    if (url.pathname === "/authorize") {
      const code = randomUUID();
      codes.set(code, url.searchParams.get("code_challenge"));
      const back = new URL(url.searchParams.get("redirect_uri"));
      back.searchParams.set("code", code);
      back.searchParams.set("state", url.searchParams.get("state"));
      return res.writeHead(302, { Location: back.href }).end();
    }
    const form = new URLSearchParams(await body(req));
    const challenge = codes.get(form.get("code"));
    codes.delete(form.get("code"));
    if (challenge === undefined || createHash("sha256").update(form.get("code_verifier")).digest("base64url") !== challenge) return json(res, 400, { error: "invalid_grant" });
    const token = randomUUID();
    tokens.add(token);
    return json(res, 200, { access_token: token, token_type: "bearer", expires_in: 3600 });
  };

  const answer = (m) => {
    switch (m.method) {
      case "initialize":
        return { result: { protocolVersion: "2025-06-18", capabilities: { tools: {} }, serverInfo: { name: "test", version: "1" } } };
      case "ping":
        return { result: {} };
      case "tools/list":
        return { result: { tools: it.tools, ttlMs: 1000 } };
      case "tools/call":
        it.called.push(m.params);
        return { result: call(m.params.name, m.params.arguments) };
      default:
        return { error: { code: -32601, message: "no such method" } };
    }
  };

  const server = createServer(async (req, res) => {
    const url = new URL(req.url, it.origin);
    if (wantsLogin && url.pathname !== "/mcp") return authorization(req, res, url);
    if (url.pathname !== "/mcp") return res.writeHead(404).end();
    if (wantsLogin && !tokens.has((req.headers.authorization ?? "").replace(/^Bearer /, ""))) {
      return json(res, 401, { error: "invalid_token" }, { "WWW-Authenticate": `Bearer resource_metadata="${it.origin}/.well-known/oauth-protected-resource/mcp"` });
    }
    if (req.method !== "POST") return res.writeHead(405).end();
    const m = JSON.parse(await body(req));
    if (m.id === undefined) return res.writeHead(202).end();
    return json(res, 200, { jsonrpc: "2.0", id: m.id, ...answer(m) });
  });
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  it.origin = `http://127.0.0.1:${server.address().port}`;
  it.url = `${it.origin}/mcp`;
  it.close = () => {
    server.closeAllConnections();
    return new Promise((done) => server.close(done));
  };
  it.forgetLogins = () => tokens.clear();
  return it;
}
