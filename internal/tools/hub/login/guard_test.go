package login

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

func parsed(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestGuardAddresses: public addresses, and those of the kind that the MCP server is at; where clouds hand
// out credentials, never.
func TestGuardAddresses(t *testing.T) {
	const public, loop, loop6, lan, lan2, ula, link, cloud, cloud2, any4, bits = "93.184.216.34", "127.0.0.1", "::1", "10.1.2.3", "192.168.1.1", "fd00::1", "169.254.169.254", "100.100.100.200", "fd00:ec2::254", "0.0.0.0", "::ffff:10.1.2.3"
	for _, c := range []struct {
		target  string
		private bool
		allowed string
	}{
		{"https://93.184.216.34/mcp", false, public},
		{"http://127.0.0.1:8000/mcp", false, strings.Join([]string{public, loop, loop6}, " ")},
		{"http://[::1]:8000/mcp", false, strings.Join([]string{public, loop, loop6}, " ")},
		{"https://10.9.9.9/mcp", false, strings.Join([]string{public, lan, lan2, ula, bits}, " ")},
		{"https://93.184.216.34/mcp", true, strings.Join([]string{public, loop, loop6, lan, lan2, ula, bits}, " ")},
		{"http://169.254.169.254/mcp", false, strings.Join([]string{public, link}, " ")},
		{"https://[fd00:ec2::254]/mcp", false, strings.Join([]string{public, cloud2, lan, lan2, ula, bits}, " ")},
		{"https://no-such-host.invalid/mcp", false, public},
	} {
		g, ok := newClient(parsed(t, c.target), Options{Settings: Settings{AllowPrivate: c.private}}).Transport.(*guard)
		if !ok {
			t.Fatal("no guard")
		}
		for _, ip := range []string{public, loop, loop6, lan, lan2, ula, link, cloud, cloud2, any4, bits, "224.0.0.1", "ff02::1", "fe80::1"} {
			want := strings.Contains(" "+c.allowed+" ", " "+ip+" ")
			if err := g.check(t.Context(), netip.MustParseAddr(ip)); (err == nil) != want {
				t.Errorf("%s (%v): %s: %v", c.target, c.private, ip, err)
			}
		}
	}
}

// TestGuardRequests: secrets travel by TLS or within this machine, a redirect is followed for metadata
// only, and a body ends somewhere.
func TestGuardRequests(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/to", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.FormValue("u"), http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) {
		for range 3 << 10 {
			_, _ = w.Write(make([]byte, 1<<10))
		}
	})
	s := httptest.NewServer(mux)
	defer s.Close()
	c := newClient(parsed(t, s.URL), Options{})
	defer c.CloseIdleConnections()
	for _, r := range []struct {
		method, to string
		want       error
	}{
		{http.MethodGet, "/to?u=/large", nil},
		{http.MethodPost, "/to?u=/large", errRedirect},
		{http.MethodGet, "/to?u=/to?u=/to?u=", errRedirect},
		{http.MethodGet, "/to?u=http://10.1.2.3/", errPlain},
		{http.MethodGet, "/to?u=https://10.1.2.3/", errAddress},
	} {
		to := r.to
		if strings.HasSuffix(to, "u=") { // a chain without end
			to = "/to?u=" + url.QueryEscape("/to?u="+url.QueryEscape("/to?u="+url.QueryEscape("/to?u="+url.QueryEscape("/large"))))
		}
		req, err := http.NewRequestWithContext(t.Context(), r.method, s.URL+to, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.Do(req)
		if !errors.Is(err, r.want) {
			t.Errorf("%s %s: %v", r.method, r.to, err)
		}
		if err == nil {
			n := 0
			for b := make([]byte, 64<<10); err == nil; {
				var m int
				m, err = res.Body.Read(b)
				n += m
			}
			_ = res.Body.Close()
			if n > maxBody {
				t.Errorf("%d bytes", n)
			}
		}
	}
}

// TestGuardProxy: a proxy is no way around it.
func TestGuardProxy(t *testing.T) {
	asked := 0
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer proxy.Close()
	c := newClient(parsed(t, "http://93.184.216.34/mcp"), Options{})
	g, ok := c.Transport.(*guard)
	if !ok {
		t.Fatal("no guard")
	}
	g.proxy = http.ProxyURL(parsed(t, proxy.URL))
	for to, want := range map[string]error{"http://93.184.216.34/x": nil, "https://169.254.169.254/x": errAddress, "https://localhost/x": errAddress} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, to, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.Do(req)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v", to, err)
		}
		if err == nil {
			_ = res.Body.Close()
		}
	}
	if asked != 1 {
		t.Errorf("the proxy was asked %d times", asked)
	}
}

// TestCovers: tokens are asked for the server itself, or a part of its site that it is below.
func TestCovers(t *testing.T) {
	target := parsed(t, "https://a.example/team/mcp")
	for resource, want := range map[string]bool{
		"https://a.example/team/mcp": true, "https://a.example/team/mcp/": true, "https://a.example/team": true, "https://a.example": true, "https://a.example/": true,
		"https://a.example/tea": false, "https://a.example/team/mcp/x": false, "http://a.example/team/mcp": false, "https://b.example/team/mcp": false,
		"https://a.example:444/team/mcp": false, "https://x@a.example/team/mcp": false, "": false, "https://a.example/team/mcp#x": false,
	} {
		if covers(resource, target) != want {
			t.Errorf("%s: %v", resource, !want)
		}
	}
}

func TestWord(t *testing.T) {
	for s, want := range map[string]string{"linear": "linear", "plugin:a-b_c.d@1": "plugin:a-b_c.d@1", "google calendar": "'google calendar'", "a'b;c": `'a'\''b;c'`, "$(x)": "'$(x)'"} {
		if got := word(s); got != want {
			t.Errorf("%s: %s", s, got)
		}
	}
}
