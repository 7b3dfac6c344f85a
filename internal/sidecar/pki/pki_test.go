package pki

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	one   = sandbox.ID("skerry-0123456789abcdef")
	other = sandbox.ID("skerry-fedcba9876543210")
)

func authority(t *testing.T) *Authority {
	t.Helper()
	a, err := Open(t.Context(), filepath.Join(t.TempDir(), "pki"))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func pod(t *testing.T, a *Authority, id sandbox.ID) *tls.Config {
	t.Helper()
	s, err := a.Sandbox(id)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range s.Files() {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, got, err := PodTLS(dir)
	if err != nil || got != id {
		t.Fatalf("PodTLS: %q, %v", got, err)
	}
	return c
}

// shake does a handshake and one byte each way: with TLS 1.3 the client learns only then that it was refused.
func shake(t *testing.T, server, client *tls.Config) error {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var fromServer error
	var wg sync.WaitGroup
	wg.Go(func() {
		raw, err := ln.Accept()
		if err != nil {
			fromServer = err
			return
		}
		defer raw.Close()
		_ = raw.SetDeadline(time.Now().Add(10 * time.Second))
		c := tls.Server(raw, server)
		if fromServer = c.Handshake(); fromServer == nil {
			_, fromServer = c.Write([]byte("x"))
		}
	})
	raw, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	_ = raw.SetDeadline(time.Now().Add(10 * time.Second))
	_, err = io.ReadFull(tls.Client(raw, client), make([]byte, 1))
	raw.Close()
	wg.Wait()
	return errors.Join(err, fromServer)
}

// TestWhoMayTalkToWhom: each pair that is meant to talk does, and no other does.
func TestWhoMayTalkToWhom(t *testing.T) {
	a, foreign := authority(t), authority(t)
	asClient := func(s Secret, name string) *tls.Config {
		pair, err := tls.X509KeyPair(s.Cert, s.Key)
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Config{ServerName: name, RootCAs: a.pool(), Certificates: []tls.Certificate{pair}}
	}
	stolen, err := a.Sandbox(other)
	if err != nil {
		t.Fatal(err)
	}
	serverCert, err := a.own(&a.server, ServerName, x509.ExtKeyUsageServerAuth)
	if err != nil {
		t.Fatal(err)
	}
	// What a thief cannot have: our authority signs it for the wrong name, or for the wrong use.
	signed := func(name string, usage x509.ExtKeyUsage) *tls.Certificate {
		raw, key, err := a.issue(name, usage, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}
	}
	with := func(c *tls.Certificate) *tls.Config {
		return &tls.Config{ServerName: SandboxName(one), RootCAs: a.pool(), Certificates: []tls.Certificate{*c}}
	}
	old := a.DialSandbox(one)
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	serving := func(c *tls.Certificate) *tls.Config {
		return serve(a.pool(), func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c, nil })
	}
	for name, c := range map[string]struct {
		server, client *tls.Config
		ok             bool
	}{
		"a server dials its sandbox":                   {pod(t, a, one), a.DialSandbox(one), true},
		"a server dials a server":                      {a.ServeServers(), a.DialServer(), true},
		"another sandbox answers":                      {pod(t, a, other), a.DialSandbox(one), false},
		"a sandbox of another installation":            {pod(t, foreign, one), a.DialSandbox(one), false},
		"a server of another installation":             {pod(t, a, one), foreign.DialSandbox(one), false},
		"a sandbox answers as a server":                {pod(t, a, one), a.DialServer(), false},
		"a server answers as a sandbox":                {a.ServeServers(), a.DialSandbox(one), false},
		"a stolen sandbox certificate dials a sandbox": {pod(t, a, one), asClient(stolen, SandboxName(one)), false},
		"a stolen sandbox certificate dials a server":  {a.ServeServers(), asClient(stolen, ServerName), false},
		"the certificate of a listening server dials":  {pod(t, a, one), with(serverCert), false},
		"a sandbox's name for dialling":                {pod(t, a, one), with(signed(SandboxName(other), x509.ExtKeyUsageClientAuth)), false},
		"a server's name for any use":                  {pod(t, a, one), with(signed(ClientName, x509.ExtKeyUsageAny)), false},
		"a sandbox's certificate for any use":          {serving(signed(SandboxName(one), x509.ExtKeyUsageAny)), a.DialSandbox(one), false},
		"no certificate":                               {pod(t, a, one), &tls.Config{ServerName: SandboxName(one), RootCAs: a.pool()}, false},
		"TLS 1.2":                                      {pod(t, a, one), old, false},
	} {
		if err := shake(t, c.server, c.client); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOpenTogether: of many who ask for the authority at once, all get the same.
func TestOpenTogether(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "pki")
	got := make([]*Authority, 8)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() {
			var err error
			if got[i], err = Open(context.Background(), dir); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	for _, a := range got {
		if !a.cert.Equal(got[0].cert) {
			t.Error("two authorities")
		}
	}
	for name, mode := range map[string]os.FileMode{".": 0o700, CertFile: 0o600, KeyFile: 0o600} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	// A crash between the two files leaves a key.
	if err := os.Remove(filepath.Join(dir, CertFile)); err != nil {
		t.Fatal(err)
	}
	if a, err := Open(t.Context(), dir); err != nil || a.cert.Equal(got[0].cert) {
		t.Errorf("after a crash: %v", err)
	}
}

func TestCertificatesEndWithTheirAuthority(t *testing.T) {
	a := authority(t)
	a.now = func() time.Time { return a.cert.NotAfter.Add(-time.Hour) }
	raw, _, err := a.issue("x", x509.ExtKeyUsageClientAuth, serverTime)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := x509.ParseCertificate(raw); err != nil || c.NotAfter.After(a.cert.NotAfter) {
		t.Errorf("%v, %v", c.NotAfter, err)
	}
}

// TestOwnCertificatesAreRenewed before they end.
func TestOwnCertificatesAreRenewed(t *testing.T) {
	a := authority(t)
	get := func() *tls.Certificate {
		c, err := a.own(&a.client, ClientName, x509.ExtKeyUsageClientAuth)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := get()
	if get() != first {
		t.Error("made twice")
	}
	now := time.Now()
	a.now = func() time.Time { return now.Add(serverTime/2 + time.Minute) }
	if get() == first {
		t.Error("not renewed")
	}
}

// TestPodTLSReadsAgain: a mounted secret that changes is used, half a change is not.
func TestPodTLSReadsAgain(t *testing.T) {
	a, next := authority(t), authority(t)
	dir := t.TempDir()
	put := func(s Secret, names ...string) {
		for _, name := range names {
			if err := os.WriteFile(filepath.Join(dir, name), s.Files()[name], 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	of := func(a *Authority) Secret {
		s, err := a.Sandbox(one)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first, second := of(a), of(next)
	put(first, CertFile, KeyFile, AuthorityFile)
	c, _, err := PodTLS(dir)
	if err != nil {
		t.Fatal(err)
	}
	put(second, KeyFile)
	if err := shake(t, c, a.DialSandbox(one)); err != nil {
		t.Errorf("half a change: %v", err)
	}
	put(second, CertFile, AuthorityFile)
	if err := shake(t, c, next.DialSandbox(one)); err != nil {
		t.Errorf("the new one: %v", err)
	}
}

func TestMistakesAreNamed(t *testing.T) {
	a := authority(t)
	for _, id := range []sandbox.ID{"", "skerry-1", "skerry-0123456789ABCDEF", "x.skerry-0123456789abcdef"} {
		if _, err := a.Sandbox(id); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("%q: %v", id, err)
		}
	}
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	s, err := a.Sandbox(one)
	if err != nil {
		t.Fatal(err)
	}
	otherKey, err := a.Sandbox(one)
	if err != nil {
		t.Fatal(err)
	}
	leaf, key := file("leaf", string(s.Cert)), file("key", string(s.Key))
	root := file("root", string(s.Authority))
	for _, c := range [][3]string{
		{filepath.Join(dir, "none"), key, "no such file"},
		{file("text", "x"), key, "no certificate"},
		{leaf, file("nokey", "x"), "no private key"},
		{leaf, key, "may not sign"},
		{root, file("other", string(otherKey.Key)), "is not that of the certificate"},
	} {
		if _, err := Load(c[0], c[1]); err == nil || !strings.Contains(err.Error(), c[2]) {
			t.Errorf("%v, want %q", err, c[2])
		}
	}
}
