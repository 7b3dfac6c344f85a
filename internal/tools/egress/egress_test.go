package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRules(t *testing.T) {
	r, err := ParseRules([]string{"API.Example.com", "*.example.org", "example.net:8443", "bücher.example."})
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]bool{
		"api.example.com:443": true, "API.EXAMPLE.COM:443": true, "api.example.com.:443": true, "api.example.com:80": false,
		"x.api.example.com:443": false, "example.com:443": false, "evilapi.example.com:443": false, "api.example.com.evil.test:443": false,
		"a.example.org:443": true, "a.b.example.org:443": true, "example.org:443": false, "notexample.org:443": false,
		"example.net:8443": true, "example.net:443": false, "bücher.example:443": true, "xn--bcher-kva.example:443": true,
		"127.0.0.1:443": false, "[::1]:443": false, "2130706433:443": false, "0x7f.1:443": false, "api.example.com": false,
		"api.example.com:0443x": false, "": false, ":443": false, "api.example.com\x00.evil.test:443": false, "api.example.com@evil.test:443": false,
	} {
		if _, _, ok := r.Allow(target); ok != want {
			t.Errorf("%q: %v", target, ok)
		}
	}
	for _, bad := range []string{"", "*", "*.com", "a.*.com", "1.2.3.4", "[::1]:443", "a.example:0", "a.example:70000", "https://a.example", "a b", "10.0.0.0/8", strings.Repeat("a.", 200) + "b"} {
		if _, err := ParseRules([]string{bad}); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := ParseRules(make([]string, maxRules+1)); err == nil {
		t.Error("too many hosts were taken")
	}
}

func FuzzRules(f *testing.F) {
	f.Add("a.example.com", "a.example.com:443")
	f.Add("*.example.com:8443", "x.EXAMPLE.com.:8443")
	f.Fuzz(func(t *testing.T, text, target string) {
		r, err := ParseRules([]string{text})
		if err != nil {
			return
		}
		name, _, ok := r.Allow(target)
		if !ok {
			return
		}
		if _, err := netip.ParseAddr(name); err == nil || strings.ContainsAny(name, "\x00\r\n /@:") {
			t.Errorf("rule %q allows %q as %q", text, target, name)
		}
		want := strings.ToLower(r.list[0].host)
		if name != want && !strings.HasSuffix(name, "."+want) {
			t.Errorf("rule %q allows %q as %q", text, target, name)
		}
	})
}

// nameserver answers every question of type A with the address that answer returns, over the connection
// that a net.Resolver dials.
func nameserver(answer func(name string) [4]byte) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer ours.Close()
			for {
				length := make([]byte, 2)
				if _, err := io.ReadFull(ours, length); err != nil {
					return
				}
				msg := make([]byte, int(length[0])<<8|int(length[1]))
				if _, err := io.ReadFull(ours, msg); err != nil {
					return
				}
				var m dnsmessage.Message
				if m.Unpack(msg) != nil || len(m.Questions) == 0 {
					return
				}
				q := m.Questions[0]
				m.Response, m.Authoritative, m.Additionals = true, true, nil
				if q.Type == dnsmessage.TypeA {
					m.Answers = []dnsmessage.Resource{{
						Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
						Body:   &dnsmessage.AResource{A: answer(q.Name.String())},
					}}
				}
				out, err := m.Pack()
				if err != nil {
					return
				}
				if _, err := ours.Write(append([]byte{byte(len(out) >> 8), byte(len(out))}, out...)); err != nil {
					return
				}
			}
		}()
		return theirs, nil
	}}
}

type bed struct {
	*testing.T
	socket  string
	refused atomic.Int32
}

func serve(t *testing.T, rules []string, answer func(string) [4]byte, exempt ...netip.Prefix) *bed {
	t.Helper()
	b := &bed{T: t, socket: filepath.Join(t.TempDir(), "egress.sock")}
	ln, err := net.Listen("unix", b.socket)
	if err != nil {
		t.Fatal(err)
	}
	r, err := ParseRules(rules)
	if err != nil {
		t.Fatal(err)
	}
	p := Serve(ln, Options{Rules: r, Log: slog.New(slog.DiscardHandler), Refused: func(string) { b.refused.Add(1) }, resolver: nameserver(answer), Addresses: exempt})
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// connect returns the first line of the answer, and the tunnel.
func (b *bed) connect(target string) (string, net.Conn) {
	b.Helper()
	conn, err := net.Dial("unix", b.socket)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	line, err := bufio.NewReaderSize(conn, 16).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(line), conn
}

var local = netip.MustParsePrefix("127.0.0.0/8")

// TestProxyReaches: a host of the list is reached, by TLS end to end.
func TestProxyReaches(t *testing.T) {
	web := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s sent %d", r.Host, len(body))
	}))
	defer web.Close()
	_, port, _ := net.SplitHostPort(web.Listener.Addr().String())
	b := serve(t, []string{"api.example.com:" + port}, func(string) [4]byte { return [4]byte{127, 0, 0, 1} }, local)
	tr := &http.Transport{
		Proxy:           http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy"}),
		DialContext:     func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", b.socket) },
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}
	defer tr.CloseIdleConnections()
	res, err := (&http.Client{Transport: tr, Timeout: 10 * time.Second}).Post("https://api.example.com:"+port, "text/plain", strings.NewReader(strings.Repeat("x", 1<<20)))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	if want := "api.example.com:" + port + " sent 1048576"; string(body) != want {
		t.Errorf("%q, want %q", body, want)
	}
}

// TestProxyRefuses: what is not on the list, and what is but leads inside.
func TestProxyRefuses(t *testing.T) {
	inside := map[string][4]byte{
		"metadata.example.": {169, 254, 169, 254}, "private.example.": {10, 0, 0, 1}, "lan.example.": {192, 168, 1, 1}, "loopback.example.": {127, 0, 0, 1},
		"zero.example.": {0, 0, 0, 0}, "shared.example.": {100, 64, 0, 1}, "multicast.example.": {224, 0, 0, 1}, "broadcast.example.": {255, 255, 255, 255},
		"docker.example.": {172, 17, 0, 1}, "benchmark.example.": {198, 18, 0, 1},
	}
	b := serve(t, []string{"*.example.invalid", "metadata.example", "private.example", "lan.example", "loopback.example", "zero.example", "shared.example", "multicast.example", "broadcast.example", "docker.example", "benchmark.example"},
		func(name string) [4]byte { return inside[name] })
	n := int32(0)
	for name := range inside {
		n++
		if line, _ := b.connect(strings.TrimSuffix(name, ".") + ":443"); !strings.Contains(line, "403") {
			t.Errorf("%s: %s", name, line)
		}
	}
	for _, target := range []string{"other.test:443", "127.0.0.1:443", "[::1]:443", "169.254.169.254:443", "metadata.example:80", "localhost:443"} {
		n++
		if line, _ := b.connect(target); !strings.Contains(line, "403") {
			t.Errorf("%s: %s", target, line)
		}
	}
	if got := b.refused.Load(); got != n {
		t.Errorf("%d refusals were told, want %d", got, n)
	}
	conn, err := net.Dial("unix", b.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET http://metadata.example/ HTTP/1.1\r\nHost: metadata.example\r\n\r\n")
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "405") {
		t.Errorf("plain HTTP: %q, %v", line, err)
	}
}

// TestRebinding: a name that answers with a public address first and a private one later gets nowhere:
// the checked address is the one connected to.
func TestRebinding(t *testing.T) {
	secret, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	_, port, _ := net.SplitHostPort(secret.Addr().String())
	b := serve(t, []string{"rebind.example:" + port}, func(string) [4]byte { return [4]byte{127, 0, 0, 1} })
	for range 3 {
		if line, _ := b.connect("rebind.example:" + port); !strings.Contains(line, "403") {
			t.Error(line)
		}
	}
}

// TestCloseEndsTunnels: an open tunnel does not outlive its proxy.
func TestCloseEndsTunnels(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
		}
	}()
	_, port, _ := net.SplitHostPort(echo.Addr().String())
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := ParseRules([]string{"echo.example:" + port})
	if err != nil {
		t.Fatal(err)
	}
	p := Serve(ln, Options{Rules: r, Log: slog.New(slog.DiscardHandler), resolver: nameserver(func(string) [4]byte { return [4]byte{127, 0, 0, 1} }), Addresses: []netip.Prefix{local}})
	b := &bed{T: t, socket: ln.Addr().String()}
	line, conn := b.connect("echo.example:" + port)
	if !strings.Contains(line, "200") {
		t.Fatal(line)
	}
	done := make(chan error, 1)
	go func() { done <- p.Close() }()
	buf := make([]byte, 100)
	for {
		if _, err := conn.Read(buf); err != nil {
			break
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
