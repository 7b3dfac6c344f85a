package peer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/replica"
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

// of gives a certificate with the names.
func (a *authority) of(names ...*url.URL) *tls.Certificate {
	key, cert := a.sign(&x509.Certificate{
		URIs: names, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	return &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// joinFar is join for a replica of another machine: it has no use for sockets.
func joinFar(t *testing.T, dir string, a *authority) *Peers {
	t.Helper()
	r, err := replica.Join(dir)
	if err != nil {
		t.Fatal(err)
	}
	mine := a.of(Name(r.ID()))
	p := New(r, &Network{Listen: "127.0.0.1:0", Authority: a.pool(), Certificate: func() (*tls.Certificate, error) { return mine, nil }})
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

// TestNetwork: replicas that announce an address are reached there, and those that do not by their sockets.
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

// TestOnlyReplicas: whoever is no replica of this installation gets no answer, whatever else the authority signed for it.
func TestOnlyReplicas(t *testing.T) {
	dir, ca := t.TempDir(), newAuthority(t)
	b := joinFar(t, dir, ca)
	addr := serveFar(t, dir, b)
	replicaName := Name("r1")
	sidecar, err := url.Parse("skerry:sandbox:0123456789abcdef")
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		show    []tls.Certificate
		version uint16
		want    bool
	}{
		"a replica":                 {show: []tls.Certificate{*ca.of(replicaName)}, want: true},
		"nobody":                    {},
		"a sidecar":                 {show: []tls.Certificate{*ca.of(sidecar)}},
		"no name":                   {show: []tls.Certificate{*ca.of()}},
		"two names":                 {show: []tls.Certificate{*ca.of(replicaName, sidecar)}},
		"an empty name":             {show: []tls.Certificate{*ca.of(Name(""))}},
		"another authority":         {show: []tls.Certificate{*newAuthority(t).of(replicaName)}},
		"the replica itself":        {show: []tls.Certificate{*ca.of(Name(b.ID()))}},
		"a replica with TLS 1.2":    {show: []tls.Certificate{*ca.of(replicaName)}, version: tls.VersionTLS12},
		"a replica of another kind": {show: []tls.Certificate{*ca.of(&url.URL{Scheme: "https", Host: "replica", Path: "/r1"})}},
	} {
		conf := &tls.Config{InsecureSkipVerify: true, Certificates: c.show, MaxVersion: c.version}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: conf}, Timeout: 20 * time.Second}
		res, err := client.Get("https://" + addr + Prefix + "alive")
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

// TestAnotherAtTheAddress: what listens at a replica's address and is another one, or none, is asked nothing.
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
	for what, show := range map[string]*tls.Certificate{
		"another authority": newAuthority(t).of(Name(c.ID())), "a sidecar": ca.of(&url.URL{Scheme: "skerry", Opaque: "sandbox:1"}),
	} {
		ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{*show}})
		if err != nil {
			t.Fatal(err)
		}
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			t.Errorf("%s: it was asked", what)
			w.WriteHeader(http.StatusNoContent)
		})}
		ended := make(chan struct{})
		go func() { _ = srv.Serve(ln); close(ended) }()
		if err := c.Announce(ln.Addr().String()); err != nil {
			t.Fatal(err)
		}
		if a.Answers(t.Context(), c.ID()) {
			t.Errorf("%s was taken for a replica", what)
		}
		_ = srv.Close()
		<-ended
	}
}

// TestSilentAddress: a replica whose lock stays although nobody is at its address, as that of a machine that lost its
// power, is there, does not answer, and costs no more than a question may take.
func TestSilentAddress(t *testing.T) {
	dir, ca := t.TempDir(), newAuthority(t)
	a, dead := joinFar(t, dir, ca), joinFar(t, dir, ca)
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{*ca.of(Name(dead.ID()))}})
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
	if err := os.Remove(filepath.Join(dir, "1", "lock")); err != nil { // now nobody sees it
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
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.network.dial(ctx, b.ID(), a.Former()); err == nil || errors.Is(err, replica.ErrGone) {
		t.Errorf("dial nowhere: %v", err)
	}
}
