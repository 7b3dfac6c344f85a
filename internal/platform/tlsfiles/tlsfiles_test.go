package tlsfiles

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{}
	cert, key := issue(t, a, name, time.Now().Add(time.Hour))
	a.pem = cert
	block, _ := pem.Decode(cert)
	var err error
	if a.cert, err = x509.ParseCertificate(block.Bytes); err != nil {
		t.Fatal(err)
	}
	k, err := x509.ParseECPrivateKey(mustBlock(t, key))
	if err != nil {
		t.Fatal(err)
	}
	a.key = k
	return a
}

func mustBlock(t *testing.T, text []byte) []byte {
	t.Helper()
	b, _ := pem.Decode(text)
	if b == nil {
		t.Fatal("no PEM")
	}
	return b.Bytes
}

// issue makes a certificate for 127.0.0.1; with an empty authority, a self-signed one.
func issue(t *testing.T, by *authority, name string, until time.Time) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<60))
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: until,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := by.cert, by.key
	if parent == nil {
		tmpl.IsCA, tmpl.BasicConstraintsValid, tmpl.KeyUsage = true, true, x509.KeyUsageCertSign
		parent, signer = tmpl, k
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, &k.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw})
}

// host is a server with files of its own.
type host struct {
	t     *testing.T
	files Files
	ca    *authority
	s     *Server
	addr  string
	log   *bytes.Buffer
}

func newHost(t *testing.T, clients *authority) *host {
	t.Helper()
	dir := t.TempDir()
	h := &host{t: t, ca: newAuthority(t, "ca"), log: &bytes.Buffer{}, files: Files{Cert: filepath.Join(dir, "c.pem"), Key: filepath.Join(dir, "k.pem")}}
	h.write(issue(t, h.ca, "one", time.Now().Add(time.Hour)))
	if clients != nil {
		h.files.ClientCA = filepath.Join(dir, "clients.pem")
		h.put(h.files.ClientCA, clients.pem)
	}
	var err error
	if h.s, err = Open(h.files, Options{Log: slog.New(slog.NewTextHandler(h.log, nil))}); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{TLSConfig: h.s.Config(), ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Proto)
	})}
	done := make(chan error, 1)
	go func() { done <- srv.ServeTLS(l, "", "") }()
	t.Cleanup(func() { _ = srv.Close(); <-done })
	h.addr = l.Addr().String()
	return h
}

func (h *host) put(path string, text []byte) {
	h.t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) write(cert, key []byte) { h.put(h.files.Cert, cert); h.put(h.files.Key, key) }

// dial connects, and returns the name in the certificate.
func (h *host) dial(change func(*tls.Config)) (*tls.Conn, string, error) {
	h.t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(h.ca.cert)
	conf := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS10} //nolint:gosec // the server refuses what is old
	if change != nil {
		change(conf)
	}
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: time.Minute}, "tcp", h.addr, conf)
	if err != nil {
		return nil, "", err
	}
	return c, c.ConnectionState().PeerCertificates[0].Subject.CommonName, nil
}

func (h *host) wantName(want string) {
	h.t.Helper()
	c, got, err := h.dial(nil)
	if err != nil || got != want {
		h.t.Errorf("certificate of %q, %v; want %q", got, err, want)
	}
	if c != nil {
		_ = c.Close()
	}
}

func ask(c net.Conn) error {
	if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return err
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	_, err = io.ReadAll(res.Body)
	return errorsOf(err, res.Body.Close())
}

func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestReload: new files are for new connections, and open ones go on; bad files change nothing, and are named once.
func TestReload(t *testing.T) {
	h := newHost(t, nil)
	h.wantName("one")
	open, _, err := h.dial(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if err := ask(open); err != nil {
		t.Fatal(err)
	}
	twoCert, twoKey := issue(t, h.ca, "two", time.Now().Add(2*time.Hour))
	h.write(twoCert, twoKey)
	h.s.Look()
	h.wantName("two")
	if err := ask(open); err != nil {
		t.Errorf("a connection from before: %v", err)
	}

	otherCert, _ := issue(t, h.ca, "three", time.Now().Add(time.Hour))
	expiredCert, expiredKey := issue(t, h.ca, "expired", time.Now().Add(-time.Minute))
	goodCert, goodKey := issue(t, h.ca, "four", time.Now().Add(time.Hour))
	for name, bad := range map[string]func(){
		"half":     func() { h.put(h.files.Cert, otherCert[:len(otherCert)/2]) },
		"mismatch": func() { h.write(otherCert, goodKey) },
		"empty":    func() { h.put(h.files.Key, nil) },
		"text":     func() { h.put(h.files.Cert, []byte("hello")) },
		"gone":     func() { _ = os.Remove(h.files.Cert) },
		"large":    func() { h.put(h.files.Cert, bytes.Repeat(otherCert, maxFileBytes/len(otherCert)+1)) },
		"expired":  func() { h.write(expiredCert, expiredKey) },
	} {
		h.write(twoCert, twoKey)
		h.s.Look()
		h.log.Reset()
		bad()
		for range 3 {
			h.s.Look()
		}
		h.wantName("two")
		if _, err := h.s.State(); err == nil || strings.Contains(err.Error(), "PRIVATE") {
			t.Errorf("%s: state %v", name, err)
		}
		if n := strings.Count(h.log.String(), "cannot be used"); n != 1 {
			t.Errorf("%s: said %d times: %s", name, n, h.log)
		}
	}
	h.write(goodCert, goodKey)
	h.s.Look()
	h.wantName("four")
	if until, err := h.s.State(); err != nil || until.Before(time.Now()) {
		t.Errorf("state %s, %v", until, err)
	}
}

// TestBack: files that are again those in use are no mistake any more.
func TestBack(t *testing.T) {
	h := newHost(t, nil)
	cert, err := os.ReadFile(h.files.Cert)
	if err != nil {
		t.Fatal(err)
	}
	h.put(h.files.Cert, []byte("oops"))
	h.s.Look()
	h.put(h.files.Cert, cert)
	h.s.Look()
	if _, err := h.s.State(); err != nil {
		t.Error(err)
	}
}

func TestVersionsAndProtocols(t *testing.T) {
	h := newHost(t, nil)
	for _, v := range []uint16{tls.VersionTLS10, tls.VersionTLS11} {
		if _, _, err := h.dial(func(c *tls.Config) { c.MaxVersion = v }); err == nil {
			t.Errorf("%s was spoken", tls.VersionName(v))
		}
	}
	for _, v := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		c, _, err := h.dial(func(c *tls.Config) { c.MaxVersion, c.NextProtos = v, []string{"h2"} })
		if err != nil || c.ConnectionState().NegotiatedProtocol != "h2" {
			t.Errorf("%s: %v", tls.VersionName(v), err)
		}
		if c != nil {
			_ = c.Close()
		}
	}
}

// TestClientCertificates: without one of the right authority nothing is answered, and that authority can be changed.
func TestClientCertificates(t *testing.T) {
	clients, strangers := newAuthority(t, "clients"), newAuthority(t, "strangers")
	h := newHost(t, clients)
	with := func(a *authority) error {
		c, _, err := h.dial(func(conf *tls.Config) {
			if a == nil {
				return
			}
			pair, err := tls.X509KeyPair(issue(t, a, "ann", time.Now().Add(time.Hour)))
			if err != nil {
				t.Fatal(err)
			}
			conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		})
		if err != nil {
			return err
		}
		defer c.Close()
		return ask(c)
	}
	if err := with(clients); err != nil {
		t.Errorf("a client: %v", err)
	}
	if with(nil) == nil || with(strangers) == nil {
		t.Error("a stranger was answered")
	}
	h.put(h.files.ClientCA, strangers.pem)
	h.s.Look()
	if with(strangers) != nil || with(clients) == nil {
		t.Error("the new authority is not in force")
	}
	h.put(h.files.ClientCA, []byte("none"))
	h.s.Look()
	if with(strangers) != nil || with(nil) == nil {
		t.Error("a bad file opened the door, or closed it")
	}
}

func TestOpenNamesTheFile(t *testing.T) {
	h := newHost(t, nil)
	for name, f := range map[string]Files{
		"/nowhere": {Cert: "/nowhere", Key: h.files.Key}, "c.pem and": {Cert: h.files.Cert, Key: h.files.Cert}, "holds no": {Cert: h.files.Cert, Key: h.files.Key, ClientCA: h.files.Key},
	} {
		if _, err := Open(f, Options{}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
