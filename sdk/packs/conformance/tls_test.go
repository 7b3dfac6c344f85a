package conformance_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"log"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// authority signs certificates of TLS, and writes them into files.
type authority struct {
	t   *testing.T
	dir string
	tls.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.Certificate = a.issue("authority")
	return a
}

// issue makes a certificate with its files NAME.pem and NAME.key. The first one is the authority's own.
func (a *authority) issue(name string) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(a.t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	by, signer := a.Leaf, a.PrivateKey
	if by == nil {
		c.IsCA, c.KeyUsage, c.ExtKeyUsage = true, x509.KeyUsageCertSign, nil
		by, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, by, key.Public(), signer)
	must(a.t, err)
	leaf, err := x509.ParseCertificate(der)
	must(a.t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	must(a.t, err)
	must(a.t, os.WriteFile(a.file(name+".pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(a.t, os.WriteFile(a.file(name+".key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// lines is a log that can be read.
type lines struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(b)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.out.String(), text)
}

// TestTLSClient: a server that demands certificates of its clients takes the pack whose certificate it knows. Another one
// of the same authority ends the program. Without one there is no connection, and the program goes on trying.
func TestTLSClient(t *testing.T) {
	t.Parallel()
	s, a, refused := newServer(t), newAuthority(t), &lines{}
	pool := x509.NewCertPool()
	pool.AddCert(a.Leaf)
	srv := s.unstarted()
	srv.EnableHTTP2 = true
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{a.issue("server")}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, MinVersion: tls.VersionTLS13}
	srv.Config.ErrorLog = log.New(refused, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	sum := sha256.Sum256(a.issue("known").Leaf.RawSubjectPublicKeyInfo)
	a.issue("unknown")
	must(t, os.WriteFile(s.authorized, []byte(`tenant="t",packs="conformance" x509-spki-sha256 `+hex.EncodeToString(sum[:])+" ci\n"), 0o600))
	with := func(name string) *program {
		return run(t, srv.URL, "SKERRY_CA="+a.file("authority.pem"), "SKERRY_CERTIFICATE="+a.file(name+".pem"), "SKERRY_CERTIFICATE_KEY="+a.file(name+".key"))
	}
	p := with("known")
	if got := result(t, s.pack(), "echo", `{"text":"by TLS"}`); got.text() != "by TLS" {
		t.Errorf("%+v", got)
	}
	p.drain()
	if code := p.code(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
	p = with("unknown")
	if code := p.code(); code == 0 || !strings.Contains(p.printed(), "certificate") {
		t.Errorf("with another certificate it ended with %d, and printed %q", code, p.printed())
	}
	before := refused.count("didn't provide a certificate")
	p = run(t, srv.URL, "SKERRY_CA="+a.file("authority.pem"))
	eventually(t, "the server is tried again", func() bool { return refused.count("didn't provide a certificate") >= before+2 })
	p.drain()
	if code := p.code(); code != 0 {
		t.Errorf("without a certificate it ended with %d", code)
	}
}
