package identity_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/tools/packs"
	"github.com/skerry-sandbox/skerry/internal/tools/packs/identity"
	provider "github.com/skerry-sandbox/skerry/sdk/go/packs"
	packsv1 "github.com/skerry-sandbox/skerry/sdk/packs/v1"
	"github.com/skerry-sandbox/skerry/sdk/packs/v1/packsv1connect"
)

type noKeys struct{}

func (noKeys) PutPackKey(context.Context, store.PackKeyRecord) error   { return nil }
func (noKeys) DeletePackKey(context.Context, string) error             { return nil }
func (noKeys) PackKeys(context.Context) ([]store.PackKeyRecord, error) { return nil, nil }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// host is a registry that takes SSH keys of a file, and nothing else.
type host struct {
	*packs.Registry
	t    *testing.T
	url  string
	file string
	dir  string

	mu     sync.Mutex
	events []packs.Event
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{t: t, dir: t.TempDir()}
	h.file = filepath.Join(h.dir, "authorized_packs")
	log := slog.New(slog.DiscardHandler)
	h.Registry = packs.New(packs.Options{Log: log, ServerID: "here", Keys: identity.New(h.file, noKeys{}, log), Recheck: 50 * time.Millisecond, Record: func(_ context.Context, e packs.Event) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.events = append(h.events, e)
	}})
	handler := h.Handler()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r.WithContext(packs.WithPeer(r.Context(), packs.Peer{Source: "192.0.2.1", Host: r.Host, Unblock: packs.Unblock(http.NewResponseController(w))})))
	}))
	srv.Config.Protocols = &http.Protocols{}
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	t.Cleanup(func() { _ = h.Close(); srv.Close() })
	h.url = srv.URL
	return h
}

// newKey makes a key, and writes its files.
func (h *host) newKey(name string) (private ed25519.PrivateKey, file string, public ssh.PublicKey) {
	h.t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	must(h.t, err)
	block, err := ssh.MarshalPrivateKey(private, name)
	must(h.t, err)
	file = filepath.Join(h.dir, name)
	must(h.t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	public, err = ssh.NewPublicKey(private.Public())
	must(h.t, err)
	return private, file, public
}

func (h *host) allow(lines ...string) {
	h.t.Helper()
	must(h.t, os.WriteFile(h.file, []byte(strings.Join(lines, "")), 0o600))
}

func lineOf(options string, key ssh.PublicKey) string {
	return options + " " + string(ssh.MarshalAuthorizedKey(key))
}

// try connects a pack once, and returns the server's error.
func (h *host) try(id string, c provider.Credential) error {
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute)
	defer cancel()
	return provider.New(id, "1").Serve(ctx, provider.Server{URL: h.url, Credential: c, Log: slog.New(slog.DiscardHandler), Connected: cancel})
}

// TestSSH: a pack proves who it is by a key in a file, with and without a certificate, or in an agent.
func TestSSH(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	private, file, public := h.newKey("one")
	_, other, _ := h.newKey("two")
	ca, _, caKey := h.newKey("ca")
	h.allow(lineOf(`tenant="acme",packs="crm"`, public), lineOf(`cert-authority,packs="mail"`, caKey))
	must(t, h.try("crm", provider.SSHKeyFile(file)))
	if err := h.try("mail", provider.SSHKeyFile(file)); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("another pack: %v", err)
	}
	if err := h.try("crm", provider.SSHKeyFile(other)); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("another key: %v", err)
	}
	if err := h.try("crm", nil); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("no key: %v", err)
	}
	keys := agent.NewKeyring()
	must(t, keys.Add(agent.AddedKey{PrivateKey: private}))
	socket := filepath.Join(h.dir, "agent")
	l, err := net.Listen("unix", socket)
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _ = agent.ServeAgent(keys, c); _ = c.Close() }()
		}
	}()
	must(t, h.try("crm", provider.SSHAgent(socket, ssh.FingerprintSHA256(public))))
	signer, err := ssh.NewSignerFromSigner(ca)
	must(t, err)
	otherText, err := os.ReadFile(other)
	must(t, err)
	otherSigner, err := ssh.ParsePrivateKey(otherText)
	must(t, err)
	cert := &ssh.Certificate{Key: otherSigner.PublicKey(), CertType: ssh.UserCert, ValidPrincipals: []string{"mail"}, ValidBefore: ssh.CertTimeInfinity}
	must(t, cert.SignCert(rand.Reader, signer))
	must(t, os.WriteFile(other+"-cert.pub", ssh.MarshalAuthorizedKey(cert), 0o600))
	must(t, h.try("mail", provider.SSHKeyFile(other)))
}

// TestRevokedKey: what a key provides ends when the key is taken out of the file.
func TestRevokedKey(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	_, file, public := h.newKey("one")
	h.allow(lineOf("", public))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := provider.New("crm", "1")
	begun := make(chan struct{})
	must(t, provider.Tool(p, "wait", "", func(ctx context.Context, _ struct{}) (string, error) { close(begun); <-ctx.Done(); return "", nil }))
	connected, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		ended <- p.Serve(ctx, provider.Server{URL: h.url, Credential: provider.SSHKeyFile(file), Log: slog.New(slog.DiscardHandler), Connected: func() { connected <- struct{}{} }})
	}()
	<-connected
	pack := h.Servers("any").List[0].Pack
	called := make(chan error, 1)
	go func() {
		_, err := pack.Call(ctx, sandbox.PackCall{Tool: "wait", Progress: func(sandbox.ToolProgress) {}})
		called <- err
	}()
	<-begun
	h.allow()
	if err := <-called; sandbox.KindOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), "not good any more") {
		t.Errorf("a call: %v", err)
	}
	cancel()
	<-ended
}

// TestReplay: an answer to one challenge is no answer to another one, nor for another address or pack.
func TestReplay(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	private, _, public := h.newKey("one")
	h.allow(lineOf("", public))
	signer, err := ssh.NewSignerFromSigner(private)
	must(t, err)
	address := strings.TrimPrefix(h.url, "http://")
	var old []byte
	attempt := func(pack, address string, sign func(*packsv1.Challenge) []byte) error {
		transport := &http.Transport{Protocols: &http.Protocols{}}
		transport.Protocols.SetUnencryptedHTTP2(true)
		defer transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		// gRPC, as the other SDKs speak it
		st := packsv1connect.NewPackServiceClient(&http.Client{Transport: transport}, h.url, connect.WithGRPC()).Connect(ctx)
		send := func(msg *packsv1.PackMessage) {
			if err := st.Send(msg); !errors.Is(err, io.EOF) { // EOF: the server has refused already, and Receive says why
				must(t, err)
			}
		}
		send(&packsv1.PackMessage{Message: &packsv1.PackMessage_Open{Open: &packsv1.Open{PackId: pack, Address: address}}})
		msg, err := st.Receive()
		if err != nil {
			return err
		}
		send(&packsv1.PackMessage{Message: &packsv1.PackMessage_Register{Register: &packsv1.Register{Manifest: &packsv1.PackManifest{PackId: pack}, Signature: sign(msg.GetChallenge())}}})
		_, err = st.Receive()
		return err
	}
	signed := func(c *packsv1.Challenge) []byte {
		raw, err := provider.SignChallenge(signer, c, "crm", address)
		must(t, err)
		old = raw
		return raw
	}
	must(t, attempt("crm", address, signed))
	for name, err := range map[string]error{
		"a replayed answer": attempt("crm", address, func(*packsv1.Challenge) []byte { return old }),
		"another pack":      attempt("mail", address, signed),
		"another address":   attempt("crm", "elsewhere:80", signed),
	} {
		if connect.CodeOf(err) != connect.CodeUnauthenticated {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Guessing is slowed, and good keys from there, too.
	eventuallySlow := false
	for range 20 {
		err := attempt("crm", address, func(*packsv1.Challenge) []byte { return old })
		eventuallySlow = eventuallySlow || connect.CodeOf(err) == connect.CodeResourceExhausted
	}
	if !eventuallySlow {
		t.Error("nothing slows guesses")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, e := range h.events {
		if e.What == packs.Refused {
			n++
		}
	}
	if n < 3 {
		t.Errorf("%d refusals are recorded", n)
	}
}

// certificate makes one for TLS, signed by a parent or by itself.
func certificate(t *testing.T, name string, parent *tls.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, IsCA: parent == nil, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	by, signer := c, any(key)
	if parent != nil {
		by, signer = parent.Leaf, parent.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, c, by, key.Public(), signer)
	must(t, err)
	leaf, err := x509.ParseCertificate(der)
	must(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// TestTLSClient: a program proves who it is by the certificate of its TLS connection, and by nothing else.
func TestTLSClient(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	authority := certificate(t, "authority", nil)
	known, unknown := certificate(t, "known", &authority), certificate(t, "unknown", &authority)
	sum := sha256.Sum256(known.Leaf.RawSubjectPublicKeyInfo)
	h.allow(`packs="crm" x509-spki-sha256 ` + hex.EncodeToString(sum[:]) + " ci\n")
	pool := x509.NewCertPool()
	pool.AddCert(authority.Leaf)
	handler := h.Handler()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r.WithContext(packs.WithPeer(r.Context(), packs.Peer{Source: "192.0.2.1", Host: r.Host, Certificate: r.TLS.PeerCertificates[0], Unblock: packs.Unblock(http.NewResponseController(w))})))
	}))
	srv.EnableHTTP2 = true
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{certificate(t, "server", &authority)}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, MinVersion: tls.VersionTLS13}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	try := func(id string, c ...tls.Certificate) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := provider.New(id, "1").Serve(ctx, provider.Server{URL: srv.URL, TLS: &tls.Config{RootCAs: pool, Certificates: c}, Log: slog.New(slog.DiscardHandler), Connected: cancel})
		if err == nil && !errors.Is(ctx.Err(), context.Canceled) {
			t.Errorf("%s was neither taken nor refused within a minute", id)
		}
		return err
	}
	must(t, try("crm", known))
	if err := try("mail", known); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("another pack: %v", err)
	}
	if err := try("crm", unknown); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("another certificate: %v", err)
	}
}
