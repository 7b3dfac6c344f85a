package peer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/ownership/replica"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.key, a.cert = a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

func (a *authority) sign(c *x509.Certificate) (*ecdsa.PrivateKey, *x509.Certificate) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(1), time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	raw, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	c, err = x509.ParseCertificate(raw)
	if err != nil {
		a.t.Fatal(err)
	}
	return key, c
}

// of returns a certificate for one use.
func (a *authority) of(use x509.ExtKeyUsage) tls.Certificate {
	key, cert := a.sign(&x509.Certificate{DNSNames: []string{"server"}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{use}})
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

func (a *authority) network() *Network {
	return &Network{
		Listen: "127.0.0.1:0",
		Serve: &tls.Config{
			MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.pool(),
			Certificates: []tls.Certificate{a.of(x509.ExtKeyUsageServerAuth)},
		},
		Dial: &tls.Config{
			MinVersion: tls.VersionTLS13, ServerName: "server", RootCAs: a.pool(), Certificates: []tls.Certificate{a.of(x509.ExtKeyUsageClientAuth)},
		},
	}
}

// joinFar is join for a replica of another machine: it has no use for sockets.
func joinFar(t *testing.T, dir string, a *authority) *Peers {
	t.Helper()
	r, err := replica.Join(dir)
	if err != nil {
		t.Fatal(err)
	}
	p := New(r, a.network())
	t.Cleanup(func() { _ = p.Close(); _ = r.Leave() })
	return p
}

// serveFar is serve without the socket.
func serveFar(t *testing.T, dir string, p *Peers) (addr string) {
	t.Helper()
	t.Cleanup(serve(t, p))
	if err := os.Remove(filepath.Join(dir, strconv.Itoa(p.Slot()), "api.sock")); err != nil {
		t.Fatal(err)
	}
	all, err := replica.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		if i.ID == p.ID() {
			return i.Peer
		}
	}
	t.Fatal("it is not listed")
	return ""
}

// TestNetwork: replicas that announce an address are reached there, and the others by their sockets.
func TestNetwork(t *testing.T) {
	dir, ca := t.TempDir(), newAuthority(t)
	a, b, near := joinFar(t, dir, ca), joinFar(t, dir, ca), join(t, dir)
	serveFar(t, dir, b)
	t.Cleanup(serve(t, near))
	if !a.Answers(t.Context(), b.ID()) || !a.Answers(t.Context(), near.ID()) {
		t.Error("a server does not answer")
	}
	if near.Answers(t.Context(), b.ID()) {
		t.Error("one without certificates got an answer over the network")
	}
	if id, sure := a.FindExec(t.Context(), main, "x", ""); id != b.ID() || !sure {
		t.Errorf("found at %q, sure %v", id, sure)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+b.ID()+"/api//x", strings.NewReader(strings.Repeat("x", 1<<20)))
	if err != nil {
		t.Fatal(err)
	}
	res, err := a.Transport().RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if text, err := io.ReadAll(res.Body); err != nil || string(text) != "api /api//x" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestOnlyServers: a client without a certificate, or with another one, gets no answer.
func TestOnlyServers(t *testing.T) {
	dir, ca := t.TempDir(), newAuthority(t)
	b := joinFar(t, dir, ca)
	addr := serveFar(t, dir, b)
	for what, c := range map[string]struct {
		show    []tls.Certificate
		to      string
		version uint16
		want    bool
	}{
		"a server":               {show: []tls.Certificate{ca.of(x509.ExtKeyUsageClientAuth)}, to: b.ID(), want: true},
		"nobody":                 {to: b.ID()},
		"another use":            {show: []tls.Certificate{ca.of(x509.ExtKeyUsageServerAuth)}, to: b.ID()},
		"another authority":      {show: []tls.Certificate{newAuthority(t).of(x509.ExtKeyUsageClientAuth)}, to: b.ID()},
		"TLS 1.2":                {show: []tls.Certificate{ca.of(x509.ExtKeyUsageClientAuth)}, to: b.ID(), version: tls.VersionTLS12},
		"one for another server": {show: []tls.Certificate{ca.of(x509.ExtKeyUsageClientAuth)}, to: "r0"},
		"one for any server":     {show: []tls.Certificate{ca.of(x509.ExtKeyUsageClientAuth)}},
	} {
		conf := &tls.Config{InsecureSkipVerify: true, Certificates: c.show, MaxVersion: c.version}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: conf}, Timeout: 20 * time.Second}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+addr+Prefix+"alive", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(replicaHeader, c.to)
		res, err := client.Do(req)
		if err == nil {
			_ = res.Body.Close()
		}
		client.CloseIdleConnections()
		if got := err == nil && res.StatusCode == http.StatusNoContent; got != c.want {
			t.Errorf("%s is answered: %t, %v", what, got, err)
		}
	}
	if res, err := http.Get("http://" + addr + Prefix + "alive"); err == nil {
		_ = res.Body.Close()
		if res.StatusCode != http.StatusBadRequest {
			t.Errorf("without TLS: %s", res.Status)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestAnotherAtTheAddress: what listens at a replica's address and is another one, or none, is not taken for it.
func TestAnotherAtTheAddress(t *testing.T) {
	dir, ca := t.TempDir(), newAuthority(t)
	a, b, c := joinFar(t, dir, ca), joinFar(t, dir, ca), joinFar(t, dir, ca)
	addr := serveFar(t, dir, b)
	if err := c.Announce(addr); err != nil { // as if b had got its address
		t.Fatal(err)
	}
	if a.Answers(t.Context(), c.ID()) {
		t.Error("another replica was taken for it")
	}
	if id, sure := a.FindExec(t.Context(), main, "y", ""); id != "" || sure {
		t.Errorf("found at %q, sure %v, although one was not asked", id, sure)
	}
	var op *net.OpError
	if res, err := a.Transport().RoundTrip(&http.Request{Method: http.MethodGet, Header: http.Header{}, URL: &url.URL{Scheme: "http", Host: c.ID(), Path: "/x"}}); !errors.As(err, &op) || op.Op != "dial" {
		t.Errorf("a request for it: %v, %v", res, err)
	}
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{newAuthority(t).of(x509.ExtKeyUsageServerAuth)}})
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		t.Error("one of another authority was asked")
		w.WriteHeader(http.StatusNoContent)
	})}
	ended := make(chan struct{})
	go func() { _ = srv.Serve(ln); close(ended) }()
	defer func() { _ = srv.Close(); <-ended }()
	if err := c.Announce(ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if a.Answers(t.Context(), c.ID()) {
		t.Error("one of another authority was taken for a replica")
	}
}

// TestSilentAddress: the lock of a replica stays although no process is at its address, as on a machine that
// lost its power. The replica counts as there, does not answer, and costs no more than a question may take.
func TestSilentAddress(t *testing.T) {
	dir, ca := t.TempDir(), newAuthority(t)
	a, dead := joinFar(t, dir, ca), joinFar(t, dir, ca)
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{ca.of(x509.ExtKeyUsageServerAuth)}})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close() // which takes connections and says nothing
	if err := dead.Announce(ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if !a.Alive(dead.ID()) || a.Answers(t.Context(), dead.ID()) {
		t.Error("it is taken for one that ended, or one that serves")
	}
}

// TestLocksMustReach: a replica that answers while its slot was free shows that locks do not work between machines.
func TestLocksMustReach(t *testing.T) {
	dir, ca := t.TempDir(), newAuthority(t)
	a := joinFar(t, dir, ca)
	serveFar(t, dir, a)
	if err := os.Remove(filepath.Join(dir, "1", "lock")); err != nil { // now no replica sees it
		t.Fatal(err)
	}
	b := joinFar(t, dir, ca)
	if b.Slot() != 1 || b.Former().ID != a.ID() {
		t.Fatalf("slot %d, former %+v", b.Slot(), b.Former())
	}
	if err := b.CheckFormer(t.Context()); err == nil || !strings.Contains(err.Error(), "locks in the data folder do not work") {
		t.Errorf("the former one lives: %v", err)
	}
	if err := joinFar(t, dir, ca).CheckFormer(t.Context()); err != nil {
		t.Errorf("a slot that nobody had: %v", err)
	}
}
