package sink

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/platform/webhook"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func entries(t *testing.T, subjects ...string) (all []audit.Entry) {
	t.Helper()
	for i, s := range subjects {
		r := audit.Record{ID: fmt.Sprint("id", i), Time: time.Unix(1_780_000_000, 0), Tenant: `ac"]me`, Action: "exec", Subject: s, Phase: audit.PhaseResult, Outcome: "denied", Seq: uint64(i + 1)}
		line, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, audit.Entry{Record: r, Line: line})
	}
	return all
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// TestWebhook: a batch is signed as documented; what is not 2xx, a redirect, and an address inside are errors.
func TestWebhook(t *testing.T) {
	secret := []byte("0123456789abcdef")
	status := http.StatusNoContent
	var got []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			return
		}
		body, _ := io.ReadAll(r.Body)
		if err := webhook.Verify(r.Header, secret, "id0", time.Now(), body); err != nil {
			t.Errorf("%v: headers %v", err, r.Header)
		}
		got = append(got, strings.Split(strings.TrimSpace(string(body)), "\n")...)
		w.Header().Set("Location", "https://example.com/")
		w.WriteHeader(status)
	}))
	defer srv.Close()
	w, err := NewWebhook(srv.URL, secret, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close() //nolint:errcheck // test
	if err := w.Send(soon(t), entries(t, "a", "b")); err != nil || len(got) != 2 || !strings.Contains(got[1], `"subject":"b"`) {
		t.Errorf("%v %v", err, got)
	}
	if err := w.Reach(soon(t)); err != nil || len(got) != 2 {
		t.Errorf("reaching it: %v %v", err, got)
	}
	for _, status = range []int{500, 302, 404} {
		if err := w.Send(soon(t), entries(t, "a")); sandbox.KindOf(err) != sandbox.Unavailable {
			t.Errorf("%d: %v", status, err)
		}
	}
	inside, err := NewWebhook(strings.Replace(srv.URL, "http:", "https:", 1), secret, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := inside.Send(soon(t), entries(t, "a")); sandbox.KindOf(err) != sandbox.Forbidden {
		t.Errorf("an address inside: %v", err)
	}
	for _, bad := range []string{"http://example.com", "ftp://example.com", "https://", "x"} {
		if _, err := NewWebhook(bad, secret, nil); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := NewWebhook("https://example.com", secret[:15], nil); err == nil {
		t.Error("a short secret")
	}
}

var head = regexp.MustCompile(`^<108>1 2026-\d\d-\d\dT[\d:.]+Z \S+ skerry \d+ exec \[skerry@32473 id="id\d+" tenant="ac\\"\\]me" phase="result" outcome="denied" seq="\d+"\] ` + "\xEF\xBB\xBF" + `(\{.*\})$`)

func subjectOf(t *testing.T, message string) string {
	t.Helper()
	m := head.FindStringSubmatch(message)
	if m == nil {
		t.Fatalf("message %q", message)
	}
	var r audit.Record
	if err := json.Unmarshal([]byte(m[1]), &r); err != nil {
		t.Fatal(err)
	}
	return r.Subject
}

// counted reads n messages with octet counting.
func counted(t *testing.T, c net.Conn, n int) (subjects []string) {
	t.Helper()
	in := bufio.NewReader(c)
	for range n {
		size, err := in.ReadString(' ')
		if err != nil {
			t.Fatal(err)
		}
		length, err := strconv.Atoi(strings.TrimSpace(size))
		if err != nil {
			t.Fatal(err)
		}
		m := make([]byte, length)
		if _, err := io.ReadFull(in, m); err != nil {
			t.Fatal(err)
		}
		subjects = append(subjects, subjectOf(t, string(m)))
	}
	return subjects
}

// TestSyslogTCP: messages are counted, and after a lost connection the batch that may be lost comes again.
func TestSyslogTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // test
	s, err := NewSyslog("tcp://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // test
	if err := s.Send(soon(t), entries(t, "a", "line\nbreak ]\"")); err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if got := counted(t, c, 2); !slices.Equal(got, []string{"a", "line\nbreak ]\""}) {
		t.Errorf("%q", got)
	}
	_ = c.Close()
	for end := time.Now().Add(10 * time.Second); !s.gone() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if err := s.Send(soon(t), entries(t, "c")); err != nil {
		t.Fatal(err)
	}
	if c, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // test
	if got := counted(t, c, 3); !slices.Equal(got, []string{"a", "line\nbreak ]\"", "c"}) {
		t.Errorf("again: %q", got)
	}
}

// TestSyslogDatagrams: a message is a datagram; a message that is too long omits its text.
func TestSyslogDatagrams(t *testing.T) {
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "log")
	unix, err := net.ListenPacket("unixgram", path)
	if err != nil {
		t.Fatal(err)
	}
	for address, l := range map[string]net.PacketConn{"udp://" + udp.LocalAddr().String(): udp, "unix://" + path: unix} {
		s, err := NewSyslog(address)
		if err != nil {
			t.Fatal(err)
		}
		long := entries(t, "a", strings.Repeat("x", maxDatagram))
		if err := s.Send(soon(t), long); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 1<<17)
		_ = l.SetReadDeadline(time.Now().Add(10 * time.Second))
		n, _, err := l.ReadFrom(buf)
		if err != nil || subjectOf(t, string(buf[:n])) != "a" {
			t.Errorf("%s: %q %v", address, buf[:n], err)
		}
		if n, _, err = l.ReadFrom(buf); err != nil || !strings.HasSuffix(string(buf[:n]), "]") {
			t.Errorf("%s: %d bytes, %v", address, n, err)
		}
		_, _ = s.Close(), l.Close()
	}
	for _, bad := range []string{"", "tcp://", "tcp://host", "http://host:1", "unix://host/x", "udp://u@h:1"} {
		if _, err := NewSyslog(bad); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
