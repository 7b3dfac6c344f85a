package onserver

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/tools/egress"
)

func requests() []attack {
	return []attack{
		{
			name: "web-rebinding", class: "requests to the API", does: "a web page reaches the server by a name of its own, from another origin, or with a form's content type", expect: "403 or 415 before anything is done",
			try: func(t *testing.T, b *bed) {
				for what, change := range map[string]func(*http.Request){
					"host": func(r *http.Request) { r.Host = "evil.example" }, "host like ours": func(r *http.Request) { r.Host = "127.0.0.1.evil.example" },
					"origin": func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, "null origin": func(r *http.Request) { r.Header.Set("Origin", "null") },
					"form":  func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") },
					"form2": func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") },
				} {
					if status := page(t, b, change); status != http.StatusForbidden && status != http.StatusUnsupportedMediaType {
						t.Errorf("%s: %d", what, status)
					}
				}
			},
			control: func(t *testing.T, b *bed) {
				if status := page(t, b, func(*http.Request) {}); status != http.StatusOK {
					t.Errorf("the same without what gives it away: %d", status)
				}
			},
		},
		{
			name: "other-tenants-thread", class: "requests to the API", does: "a user names another one's thread, plainly, encoded and by a path", expect: "404 or empty folders, as of a thread that is not there",
			try: func(t *testing.T, b *bed) {
				b.ok(t, bob, "private", "echo CANARY > /mnt/user-data/workspace/x")
				for _, name := range []string{"private", "..%2f..%2f" + bob + "%2fthreads%2fprivate", "%2e%2e/private", "private%00", "private/../private", bob + "%2Fprivate"} {
					for _, call := range []string{"", "/files?path=/mnt/user-data/workspace/x", "/files/list?path=/mnt/user-data/workspace", "/execs", "/files/content?path=/mnt/user-data/workspace/x"} {
						a := b.do(t, eve, "GET", "/api/threads/"+name+call, nil)
						// Her own thread of that name is not there yet, and has empty folders.
						if a.status == http.StatusOK && bytes.HasPrefix(a.body, []byte(`{"items":[],`)) {
							continue
						}
						if a.status < 400 || a.status >= 500 || bytes.Contains(a.body, []byte("CANARY")) {
							t.Errorf("%s%s: %d %.200s", name, call, a.status, a.body)
						}
					}
				}
				if a := b.do(t, eve, "POST", "/api/skills/install", map[string]any{"thread_id": "private", "path": "/mnt/user-data/workspace/x"}); a.status != http.StatusNotFound {
					t.Errorf("install: %d %s", a.status, a.body)
				}
			},
			control: func(t *testing.T, b *bed) {
				b.ok(t, bob, "private", "echo CANARY > /mnt/user-data/workspace/x")
				if a := b.do(t, bob, "GET", "/api/threads/private/files?path=/mnt/user-data/workspace/x", nil); !bytes.Contains(a.body, []byte("CANARY")) {
					t.Errorf("its owner: %d %s", a.status, a.body)
				}
			},
		},
		{
			name: "virtual-paths", class: "paths", does: "paths leave by .., NUL, //, percent signs, look-alikes and links of the host's proc", expect: "400, 403 or 404, and nothing of the host",
			try: oddPaths, control: func(t *testing.T, b *bed) {
				c := b.canary(t)
				b.ok(t, eve, "paths", "true")
				root := b.host(t, eve, "paths")
				name := "/mnt/user-data/workspace/" + strings.Repeat("../", 30) + c.secret()[1:]
				raw, err := os.ReadFile(filepath.Join(root, strings.TrimPrefix(name, "/mnt/user-data")))
				if err != nil || !strings.Contains(string(raw), c.text) {
					t.Errorf("joined without a check it reads %q, %v", raw, err)
				}
			},
		},
		{
			name: "json-bomb", class: "requests to the API", does: "a body nests a million deep, is 64 MiB long, or has numbers and names beyond all bounds", expect: "4xx, and memory stays",
			try: func(t *testing.T, b *bed) {
				before := b.rss(t)
				for what, raw := range map[string][]byte{
					"deep": []byte(strings.Repeat(`{"a":`, 1_000_000)), "deep list": []byte(`{"command":` + strings.Repeat("[", 1_000_000)), "long": bytes.Repeat([]byte(" "), 64<<20),
					"number": []byte(`{"command":"true","timeout_s":1e999999999}`), "huge key": []byte(`{"` + strings.Repeat("k", 8<<20) + `":1}`), "text": []byte("\xff\xfe{}"), "keys": []byte(`{"a":1` + strings.Repeat(`,"b":1,"c":2`, 100_000) + "}"),
				} {
					req, err := http.NewRequest(http.MethodPost, b.url+"/api/threads/json/exec", bytes.NewReader(raw))
					must(t, err)
					req.Header.Set("Content-Type", "application/json")
					a, err := b.send(eve, req)
					if err == nil && (a.status < 400 || a.status >= 500) {
						t.Errorf("%s: %d %.200s", what, a.status, a.body)
					}
					if len(a.body) > 64<<10 {
						t.Errorf("%s: an answer of %d bytes", what, len(a.body))
					}
				}
				// A body may have 32 MiB, and reading one takes some times that.
				if grown := b.rss(t) - before; grown > 400<<20 {
					t.Errorf("the server grew by %d bytes", grown)
				}
			},
			control: func(t *testing.T, _ *bed) {
				raw, err := io.ReadAll(bytes.NewReader(bytes.Repeat([]byte("["), 64<<20)))
				if err != nil || len(raw) != 64<<20 || nesting(raw, 0) < 1_000_000 {
					t.Errorf("a reader without limits takes %d bytes, %v", len(raw), err)
				}
			},
		},
		{
			name: "ssrf-install", class: "requests the server makes", does: "a skill is to be fetched from an address inside", expect: "refused, nothing is asked",
			try: func(t *testing.T, b *bed) {
				asked, address := metadata(t)
				for _, u := range []string{address, strings.Replace(address, "http://", "s3://", 1), "file:///etc/passwd", "s3://169.254.169.254/x", "gopher://" + address[7:]} {
					if a := b.do(t, eve, "POST", "/api/skills/install", map[string]any{"url": u}); a.status < 400 || a.status == 500 {
						t.Errorf("%s: %d %s", u, a.status, a.body)
					}
				}
				if asked.Load() > 0 {
					t.Error("the address was asked")
				}
			},
			control: func(t *testing.T, _ *bed) {
				asked, address := metadata(t)
				if res, err := http.Get(address); err != nil || res.Body.Close() != nil || asked.Load() != 1 { //nolint:gosec // on purpose
					t.Errorf("a fetch without a guard: %v", err)
				}
			},
		},
		{
			name: "ssrf-proxy", class: "requests the server makes", does: "a sandboxed MCP server asks its proxy for addresses inside, in every spelling", expect: "403, and no connection",
			try: func(t *testing.T, b *bed) {
				asked, address := metadata(t)
				_, port, err := net.SplitHostPort(address[7:])
				must(t, err)
				for _, host := range inward {
					if line := b.connect(t, host+":"+port); !strings.Contains(line, " 403 ") && !strings.Contains(line, " 400 ") {
						t.Errorf("%s: %s", host, line)
					}
				}
				if asked.Load() > 0 {
					t.Error("the address was asked")
				}
			},
			control: func(t *testing.T, _ *bed) {
				asked, address := metadata(t)
				conn, err := net.Dial("tcp", address[7:])
				must(t, err)
				defer conn.Close()
				_, err = fmt.Fprintf(conn, "GET / HTTP/1.0\r\n\r\n")
				must(t, err)
				eventually(t, "a proxy that dials what it is told reaches it", func() bool { return asked.Load() == 1 })
			},
		},
		{
			name: "ssrf-redirect", class: "requests the server makes", does: "a server that may be asked redirects to an address inside, also by a name that leads there", expect: "the connection is refused when it is made",
			try: func(t *testing.T, _ *bed) {
				asked, err := followed(t, egress.PublicDialer([]netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}))
				if !egress.Refused(err) || asked != 0 {
					t.Errorf("asked %d times, %v", asked, err)
				}
			},
			control: func(t *testing.T, _ *bed) {
				if asked, err := followed(t, &net.Dialer{}); err != nil || asked != 1 {
					t.Errorf("asked %d times, %v", asked, err)
				}
			},
		},
	}
}

// page sends what a web page could send, changed.
func page(t *testing.T, b *bed, change func(*http.Request)) int {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, b.url+"/api/threads/page/exec", strings.NewReader(`{"command":"true"}`))
	must(t, err)
	req.Header.Set("Content-Type", "application/json")
	change(req)
	a, err := b.send(eve, req)
	must(t, err)
	return a.status
}

func oddPaths(t *testing.T, b *bed) {
	c := b.canary(t)
	b.ok(t, eve, "paths", "ln -sfn /proc/self/root /mnt/user-data/workspace/root; ln -sfn "+c.dir+" /mnt/user-data/workspace/out; true")
	for _, p := range []string{
		"/mnt/user-data/../.." + c.secret(), "/mnt/user-data/workspace/../../../../../.." + c.secret(), c.secret(), "/mnt/user-data/workspace/root" + c.secret(),
		"/mnt/user-data/workspace/out/secret", "/mnt/user-data/\x00" + c.secret(), "/mnt//user-data//..//..//" + c.secret(), "/mnt/user-data/%2e%2e/%2e%2e" + c.secret(),
		"/mnt/user-data/．．/．．" + c.secret(), "/mnt/user-data/..\\..\\secret", "file://" + c.secret(), "/mnt/skills/../.." + c.secret(), "/mnt/code-api/../.." + c.secret(),
		"/mnt/user-data/workspace/" + strings.Repeat("a/", 3000), "/MNT/USER-DATA" + c.secret(), "mnt/user-data/workspace/out/secret", "/proc/self/environ", "/run/skerry/control.sock", "",
	} {
		q := "?path=" + url.QueryEscape(p)
		for _, a := range []answer{
			b.do(t, eve, "GET", "/api/threads/paths/files"+q, nil), b.do(t, eve, "GET", "/api/threads/paths/files/content"+q, nil), b.do(t, eve, "GET", "/api/threads/paths/files/list"+q, nil),
			b.do(t, eve, "PUT", "/api/threads/paths/files", map[string]any{"path": p, "content": "x"}), b.do(t, eve, "PUT", "/api/threads/paths/files/content"+q, []byte("x")),
			b.do(t, eve, "POST", "/api/threads/paths/files/mkdir", map[string]any{"path": p + "/planted"}), b.do(t, eve, "DELETE", "/api/threads/paths/files"+q+"&recursive=true", nil),
			b.do(t, eve, "POST", "/api/threads/paths/files/move", map[string]any{"from": p, "to": "/mnt/user-data/workspace/stolen"}),
		} {
			if a.status < 400 && strings.ContainsAny(p, "．\\%") {
				continue // names like any other
			}
			if c.silent(t, b, a); a.status < 400 {
				t.Errorf("%.80q: %d %.200s", p, a.status, a.body)
			}
		}
	}
	c.untouched(t)
}

// nesting counts how deep a text nests, as a parser without a limit goes.
func nesting(raw []byte, depth int) int {
	if len(raw) == 0 || raw[0] != '[' || depth == 1_000_000 {
		return depth
	}
	return nesting(raw[1:], depth+1)
}

// metadata is a server that no outsider may reach, such as a cloud has.
func metadata(t *testing.T) (asked *atomic.Int32, address string) {
	t.Helper()
	asked = new(atomic.Int32)
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(s.Close)
	return asked, s.URL
}

// inward are hosts that lead inside.
var inward = []string{
	"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0", "0.0.0.0", "169.254.169.254",
	"[fe80::1]", "[fd00:ec2::254]", "[64:ff9b::7f00:1]", "10.0.0.1", "172.17.0.1", "192.168.1.1", "100.100.100.200", "localhost.", "api.example@127.0.0.1", "ip6-localhost",
	"127.0.0.1.api.example", "inside.example",
}

// connect asks a proxy for a host and returns the first line of its answer. The proxy allows a public name,
// and one name of the list inward.
func (b *bed) connect(t *testing.T, target string) string {
	t.Helper()
	rules, err := egress.ParseRules([]string{"api.example", "localhost:80"})
	must(t, err)
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	must(t, err)
	p := egress.Serve(ln, egress.Options{Rules: rules, Log: slog.New(slog.DiscardHandler)})
	defer p.Close()
	conn, err := net.Dial("unix", ln.Addr().String())
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(soon)))
	_, err = fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	must(t, err)
	buf := make([]byte, 200)
	n, err := conn.Read(buf)
	must(t, err)
	line, _, _ := strings.Cut(string(buf[:n]), "\r\n")
	return line
}

// followed fetches from a server at 127.0.0.2 that redirects to one at 127.0.0.1.
func followed(t *testing.T, d *net.Dialer) (asked int, err error) {
	t.Helper()
	n, address := metadata(t)
	ln, err := net.Listen("tcp", "127.0.0.2:0")
	must(t, err)
	s := &httptest.Server{Listener: ln, Config: &http.Server{Handler: http.RedirectHandler(strings.Replace(address, "127.0.0.1", "localhost", 1), http.StatusFound), ReadHeaderTimeout: soon}}
	s.Start()
	defer s.Close()
	tr := &http.Transport{DialContext: d.DialContext, DisableKeepAlives: true}
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	must(t, err)
	res, err := (&http.Client{Transport: tr}).Do(req)
	if err == nil {
		err = res.Body.Close()
	}
	return int(n.Load()), err
}
