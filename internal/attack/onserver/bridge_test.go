package onserver

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// bridgeClient is what code in a sandbox can do to the bridge.
const bridgeClient = `import json, os, socket, sys, time
mine = os.environ["SKERRY_EXEC_TOKEN"]
def connect():
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(40)
    s.connect(os.environ["MCP_BRIDGE_SOCKET"])
    return s
def status(s):
    try: return int(s.recv(4096).split(b" ")[1])
    except (OSError, IndexError): return 0
def call(token, body=b'{"tool":"far__echo","input":{"text":"hi"}}', extra=b"", length=True):
    s = connect()
    head = b"POST /call HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + extra
    if token is not None: head += b"Authorization: Bearer " + token.encode() + b"\r\n"
    if length: head += b"Content-Length: %d\r\n" % len(body)
    try: s.sendall(head + b"\r\n" + body)
    except OSError: pass
    return status(s)
`

// code runs a Python program in a thread and returns its stdout.
func (b *bed) code(t *testing.T, user, thread, text string) string {
	t.Helper()
	r := b.run(t, user, thread, "execute_code", map[string]any{"language": "python", "timeout": 100, "code": bridgeClient + text})
	if r.ExitCode == nil || *r.ExitCode != 0 {
		t.Fatalf("%s %v: %s", r.Status, r.ExitCode, r.Stderr)
	}
	return strings.TrimSpace(r.Stdout)
}

// lends runs an exec of a user that goes on, and returns its token.
func (b *bed) lends(t *testing.T, user, thread string) (token string, stop func()) {
	t.Helper()
	b.ok(t, user, thread, "rm -f /mnt/user-data/workspace/token")
	_, stop = b.background(t, user, thread, "echo $SKERRY_EXEC_TOKEN > /mnt/user-data/workspace/token; sleep 100")
	file := filepath.Join(b.host(t, user, thread), "workspace/token")
	eventually(t, "the exec tells its token", func() bool {
		raw, err := os.ReadFile(file)
		token = strings.TrimSpace(string(raw))
		return err == nil && len(token) == 64
	})
	return token, stop
}

func bridges() []attack {
	ownToken := func(t *testing.T, b *bed) {
		if got := b.code(t, eve, "bridge", `print(call(mine))`); got != "200" {
			t.Errorf("a call with a good token: %s", got)
		}
	}
	return []attack{
		{
			name: "token-guess", class: "tokens of the bridge", does: "code calls tools without a token and with guessed ones", expect: "401 for each, and a bound on records of it",
			try: func(t *testing.T, b *bed) {
				got := b.code(t, eve, "bridge", `print(sorted({call(k) for k in [None, "", "0" * 64, mine[:-1], mine.upper() + "x", mine[:-1] + "\x00"] + [os.urandom(32).hex() for _ in range(300)]}))`)
				if got != "[401]" && got != "[400, 401]" { // NUL is no header
					t.Errorf("statuses: %s", got)
				}
				a := b.do(t, "", "GET", "/api/audit?limit=1000&thread=bridge", nil)
				if n := bytes.Count(a.body, []byte("a token that is unknown")); n == 0 || n > 250 {
					t.Errorf("%d records of refusals", n)
				}
			},
			control: ownToken,
		},
		{
			name: "token-of-another", class: "tokens of the bridge", does: "code calls tools with the token of another user's running exec", expect: "401",
			try: func(t *testing.T, b *bed) {
				token, stop := b.lends(t, bob, "lender")
				defer stop()
				if got := b.code(t, eve, "bridge", fmt.Sprintf(`print(call(%q), call(mine, extra=b"X-Skerry-Exec-Token: %s\r\n"))`, token, token)); got != "401 200" {
					t.Errorf("statuses: %s; the second is a call of its own", got)
				}
				if a := b.do(t, "", "GET", "/api/audit?action=tool_call&thread=lender", nil); !bytes.Contains(a.body, []byte(`"items":[]`)) {
					t.Errorf("calls in the name of the other: %s", a.body)
				}
			},
			control: func(t *testing.T, b *bed) {
				token, stop := b.lends(t, bob, "lender")
				defer stop()
				if got := b.code(t, bob, "lender", fmt.Sprintf(`print(call(%q))`, token)); got != "200" {
					t.Errorf("the same token at its own socket: %s", got)
				}
			},
		},
		{
			name: "token-of-the-past", class: "tokens of the bridge", does: "code calls tools with the token of an exec that has ended", expect: "401",
			try: func(t *testing.T, b *bed) {
				token, stop := b.lends(t, eve, "bridge")
				stop()
				eventually(t, "the exec has ended", func() bool { return b.code(t, eve, "bridge", fmt.Sprintf(`print(call(%q))`, token)) == "401" })
			},
			control: func(t *testing.T, b *bed) {
				token, stop := b.lends(t, eve, "bridge")
				defer stop()
				if got := b.code(t, eve, "bridge", fmt.Sprintf(`print(call(%q))`, token)); got != "200" {
					t.Errorf("while it runs: %s", got)
				}
			},
		},
		{
			name: "bridge-identity", class: "requests to the bridge", does: "headers claim another user, thread, host and administrator, and a second request is smuggled behind the first",
			expect: "the call counts as the exec's own, or is refused", try: forgedIdentity, control: func(t *testing.T, b *bed) {
				b.ok(t, bob, "neighbour", "true")
				for user, want := range map[string]bool{bob: true, "": false} {
					if a := b.do(t, user, "GET", "/api/threads", nil); bytes.Contains(a.body, []byte(`"neighbour"`)) != want {
						t.Errorf("at the API, where an administrator's key may send it, the header of %q has no effect: %s", user, a.body)
					}
				}
			},
		},
		{
			name: "bridge-bodies", class: "requests to the bridge", does: "bodies are larger than the limit, have no end, or nest 500,000 deep", expect: "413 or 400, and memory stays",
			try: func(t *testing.T, b *bed) {
				before := b.rss(t)
				got := b.code(t, eve, "bridge", `
big = b'{"tool":"far__echo","input":{"text":"' + b"x" * (6 << 20) + b'"}}'
deep = b'{"tool":"far__echo","input":' + b'{"a":' * 500000 + b"1" + b"}" * 500001
def endless():
    s = connect(); n = 0
    s.sendall(b"POST /call HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + mine.encode() + b"\r\nTransfer-Encoding: chunked\r\n\r\n")
    try:
        while n < 64: s.sendall(b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"); n += 1
    except OSError: pass
    return n < 64
print(call(mine, big), call(mine, deep), endless(), call(mine, b"{}", b"Content-Length: 99999999999\r\n", False), call(mine))`)
				if got != "413 400 True 413 200" {
					t.Errorf("statuses: %s", got)
				}
				if grown := b.rss(t) - before; grown > 128<<20 {
					t.Errorf("the server grew by %d bytes", grown)
				}
			},
			control: func(t *testing.T, _ *bed) {
				got := int64(0)
				s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got, _ = io.Copy(io.Discard, r.Body) })}
				ln, err := net.Listen("tcp", "127.0.0.1:0")
				must(t, err)
				done := make(chan struct{})
				go func() { defer close(done); _ = s.Serve(ln) }()
				defer func() { _ = s.Close(); <-done }()
				res, err := http.Post("http://"+ln.Addr().String(), "application/json", bytes.NewReader(make([]byte, 64<<20)))
				must(t, err)
				must(t, res.Body.Close())
				if got != 64<<20 {
					t.Errorf("a server without a limit takes %d bytes", got)
				}
			},
		},
		{
			name: "bridge-connections", class: "requests to the bridge", does: "hundreds of connections send a header a byte at a time, or nothing", expect: "at most 256 are held, each for seconds; others' calls go on",
			try: manyConnections, control: func(t *testing.T, _ *bed) {
				var open atomic.Int32
				s := &http.Server{ConnState: func(_ net.Conn, st http.ConnState) { //nolint:gosec // without limits on purpose
					if st == http.StateNew {
						open.Add(1)
					}
				}}
				ln, err := net.Listen("tcp", "127.0.0.1:0")
				must(t, err)
				done := make(chan struct{})
				go func() { defer close(done); _ = s.Serve(ln) }()
				defer func() { _ = s.Close(); <-done }()
				for range 400 {
					c, err := net.Dial("tcp", ln.Addr().String())
					must(t, err)
					defer c.Close()
				}
				eventually(t, "a server without limits holds them all", func() bool { return open.Load() == 400 })
			},
		},
		{
			name: "tool-not-offered", class: "tools", does: "code and a caller ask for a disabled tool, by every name it could have", expect: "404 as of a tool that is not there",
			try: func(t *testing.T, b *bed) {
				got := b.code(t, eve, "bridge", `print(sorted({call(mine, json.dumps(q).encode()) for q in [{"tool":"far__secret_tool"},{"tool":"far.secret_tool"},{"server":"far","tool":"secret_tool"},{"tool":"FAR__SECRET_TOOL"},{"tool":"far__secret_tool\u0000"}]}))`)
				if got != "[404]" {
					t.Errorf("statuses: %s", got)
				}
				for _, q := range []map[string]any{{"tool": "far__secret_tool"}, {"server": "far", "tool": "secret_tool"}} {
					if a := b.do(t, eve, "POST", "/api/threads/bridge/tools/call", q); a.status != http.StatusNotFound {
						t.Errorf("%v: %d %s", q, a.status, a.body)
					}
				}
				if a := b.do(t, eve, "GET", "/api/threads/bridge/tools?query=secret&detail=full", nil); bytes.Contains(a.body, []byte("far__secret_tool")) {
					t.Errorf("it is found: %s", a.body)
				}
				if b.mcp.secret.Load() != 0 {
					t.Error("the tool was called")
				}
			},
			control: func(t *testing.T, b *bed) {
				if got := b.code(t, eve, "bridge", `print(call(mine, b'{"tool":"open__secret_tool"}'))`); got != "200" || b.mcp.secret.Swap(0) != 1 {
					t.Errorf("the same tool of a server that does not disable it: %s", got)
				}
			},
		},
	}
}

func forgedIdentity(t *testing.T, b *bed) {
	got := b.code(t, eve, "bridge", `
forged = b"On-Behalf-Of: bob\r\nX-API-Key: admin\r\nSkerry-Thread: neighbour\r\nX-Forwarded-For: 127.0.0.1\r\nX-Skerry-Thread: neighbour\r\n"
inner = b'POST /call HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}'
def smuggle():
    s = connect()
    s.sendall(b"POST /call HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + mine.encode() + b"\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner)
    got = b""
    s.settimeout(3)
    try:
        while True:
            part = s.recv(65536)
            if not part: break
            got += part
    except OSError: pass
    return b"HTTP/1.1 200" in got
print(call(mine, extra=forged), call(mine, extra=b"Host: evil\r\n"), smuggle())`)
	if got != "200 400 False" {
		t.Errorf("statuses: %s", got)
	}
	a := b.do(t, "", "GET", "/api/audit?action=tool_call&limit=1000&user=bob", nil)
	if bytes.Contains(a.body, []byte(`"thread":"neighbour"`)) {
		t.Errorf("a call in bob's name: %.500s", a.body)
	}
}

func manyConnections(t *testing.T, b *bed) {
	files := func() int {
		list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", b.cmd.Process.Pid))
		must(t, err)
		return len(list)
	}
	before := files()
	_, stop := b.background(t, eve, "bridge", "python3 - <<'E'\n"+bridgeClient+`
held = [connect() for _ in range(400)]
for s in held: s.setblocking(False)
for byte in b"POST /call HTTP/1.1\r\nHost: " + b"x" * 200:
    for s in held:
        try: s.send(bytes([byte]))
        except OSError: pass
    time.sleep(0.2)
E`)
	defer stop()
	eventually(t, "the connections are there", func() bool { return files() > before+100 })
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		if got := b.code(t, bob, "lender", `print(call(mine))`); got != "200" {
			t.Errorf("a call of another sandbox: %s", got)
		}
		if n := files(); n > before+400 {
			t.Errorf("the server holds %d files, %d before", n, before)
		}
	}
	b.ok(t, eve, "bridge", "true")
	stop()
	eventually(t, "the connections are gone, and calls go on", func() bool { return b.code(t, eve, "bridge", `print(call(mine))`) == "200" })
}
