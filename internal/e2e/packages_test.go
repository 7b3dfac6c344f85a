package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// npmServer is the MCP server that the registry of the test has: in JavaScript, with one tool.
const npmServer = `#!/usr/bin/env node
const lines = require("node:readline").createInterface({ input: process.stdin });
lines.on("line", (line) => {
  const m = JSON.parse(line);
  if (m.id === undefined) return;
  let result;
  if (m.method === "initialize") result = { protocolVersion: "2025-06-18", capabilities: { tools: {} }, serverInfo: { name: "npm", version: "1" } };
  else if (m.method === "tools/list") result = { tools: [{ name: "hello", inputSchema: { type: "object" } }] };
  else if (m.method === "tools/call") result = { content: [{ type: "text", text: "hello from npm" }] };
  const error = result ? undefined : { code: -32601, message: "no such method" };
  console.log(JSON.stringify({ jsonrpc: "2.0", id: m.id, result, error }));
});
`

// npmRegistry serves the package hello-mcp at https://localhost:PORT, and puts the authority that its certificate is from
// into dir/authority.pem. It returns the address.
func npmRegistry(t *testing.T, dir string) string {
	t.Helper()
	var archive bytes.Buffer
	packed := gzip.NewWriter(&archive)
	files := tar.NewWriter(packed)
	for _, f := range []struct{ name, text string }{
		{"package/package.json", `{"name":"hello-mcp","version":"1.0.0","bin":{"hello-mcp":"server.js"}}`}, {"package/server.js", npmServer},
	} {
		must(t, files.WriteHeader(&tar.Header{Name: f.name, Mode: 0o755, Size: int64(len(f.text)), Typeflag: tar.TypeReg}))
		_, err := files.Write([]byte(f.text))
		must(t, err)
	}
	must(t, files.Close())
	must(t, packed.Close())
	digest := sha512.Sum512(archive.Bytes())

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "registry of a test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "authority.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644))

	r := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch req.URL.Path {
		case "/hello-mcp":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"name":"hello-mcp","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"hello-mcp","version":"1.0.0",
				"bin":{"hello-mcp":"server.js"},"dist":{"tarball":"https://%s/hello-mcp-1.0.0.tgz","integrity":"sha512-%s"}}}}`, req.Host, base64.StdEncoding.EncodeToString(digest[:]))
		case "/hello-mcp-1.0.0.tgz":
			_, _ = w.Write(archive.Bytes())
		default:
			http.NotFound(w, req)
		}
	}))
	r.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12}
	r.StartTLS()
	t.Cleanup(r.Close)
	_, port, err := net.SplitHostPort(r.Listener.Addr().String())
	must(t, err)
	return "localhost:" + port
}

// TestInstalledServer: `skerry mcp install` fetches what npx starts, and then the server starts without a way out.
func TestInstalledServer(t *testing.T) {
	t.Parallel()
	for _, o := range first(options{driver: "docker", runtime: "runc"}, options{driver: "oci", runtime: "runsc"}) {
		t.Run(o.driver+"/"+o.runtime, func(t *testing.T) {
			needDriver(t, o.driver, o.runtime)
			shared := sharedFolder(t)
			registry := npmRegistry(t, shared)
			config, err := json.Marshal(map[string]any{"mcpServers": map[string]any{
				"hello": map[string]any{
					"command": "npx", "args": []string{"-y", "hello-mcp"},
					"env": map[string]string{"npm_config_registry": "https://" + registry + "/", "NODE_EXTRA_CA_CERTS": "/srv/authority/authority.pem", "NO_PROXY": "", "no_proxy": ""},
					"sandbox": map[string]any{
						"addresses": []string{"127.0.0.0/8", "::1"}, "mounts": map[string]string{"/srv/authority": shared},
					},
				},
				"thread": map[string]any{"command": "npx", "args": []string{"x"}, "scope": "thread", "sandbox": true},
				"host":   map[string]any{"command": "true"},
			}})
			must(t, err)
			o.extensions, o.env = string(config), []string{"SKERRY_PLUGINS_PACKAGE_HOSTS=" + registry}
			s := start(t, o)
			call := func() (int, string) {
				a := s.do("POST", "/api/threads/p/tools/call", map[string]any{"tool": "hello__hello", "input": map[string]any{}})
				return a.status, string(a.body)
			}
			if status, body := call(); status == 200 {
				t.Fatalf("before it is installed, and without a way out: %s", body)
			}
			if list := string(s.do("GET", "/api/threads/p/servers", nil).body); !strings.Contains(list, "ENOTCACHED") {
				t.Errorf("what is missing is not said: %s", list)
			}
			if out := s.cli("mcp", "install", "hello"); !strings.Contains(out, "hello is installed, and has 1 tool\n") {
				t.Errorf("%s", out)
			}
			if status, body := call(); status != 200 || !strings.Contains(body, "hello from npm") {
				t.Errorf("after it: %d %s", status, body)
			}
			if refused := s.records("action=egress_refused", "result"); len(refused) != 0 {
				t.Errorf("%v", refused)
			}
			for server, want := range map[string]string{"thread": "home folder for each thread", "host": "no sandbox of its own", "nothing": "there is no MCP server"} {
				out, err := exec.Command(filepath.Join(bin, "skerry"), "mcp", "install", server, "--server", s.url).CombinedOutput()
				if err == nil || !strings.Contains(string(out), want) {
					t.Errorf("%s: %v %s", server, err, out)
				}
			}
		})
	}
}
