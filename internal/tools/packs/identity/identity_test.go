package identity

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"

	"github.com/skerry-sandbox/skerry/internal/e2e/docblock"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/tools/packs"
)

// memory is a state in this process.
type memory struct {
	mu   sync.Mutex
	keys map[string]store.PackKeyRecord
}

func (m *memory) PutPackKey(_ context.Context, r store.PackKeyRecord) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keys[r.ID] = r
	return nil
}

func (m *memory) DeletePackKey(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.keys[id]; !ok {
		return sandbox.Errorf(sandbox.NotFound, "none")
	}
	delete(m.keys, id)
	return nil
}

func (m *memory) PackKeys(context.Context) (list []store.PackKeyRecord, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.keys {
		list = append(list, r)
	}
	return list, nil
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rsaKey is made once: it takes long.
var rsaKey = sync.OnceValue(func() crypto.Signer { return mustRSA(3072) })

func mustRSA(bits int) crypto.Signer {
	k, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		panic(err)
	}
	return k
}

func signerOf(t testing.TB, key crypto.Signer) ssh.Signer {
	t.Helper()
	s, err := ssh.NewSignerFromSigner(key)
	must(t, err)
	return s
}

func edKey(t testing.TB) ssh.Signer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	return signerOf(t, key)
}

func ecKey(t testing.TB, c elliptic.Curve) ssh.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(c, rand.Reader)
	must(t, err)
	return signerOf(t, key)
}

// line is a line of the file for a key.
func line(options string, key ssh.PublicKey) string {
	text := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
	if options != "" {
		text = options + " " + text
	}
	return text + " a key\n"
}

func authority(t testing.TB, file string) (*Authority, *memory) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "authorized_packs")
	must(t, os.WriteFile(path, []byte(file), 0o600))
	m := &memory{keys: map[string]store.PackKeyRecord{}}
	return New(path, m, slog.New(slog.DiscardHandler)), m
}

const signedText = "skerry-pack-v1\nhere\n00\n1\ncrm\n127.0.0.1\n"

func sign(t testing.TB, s ssh.Signer, namespace string, as ssh.PublicKey) []byte {
	t.Helper()
	sig, err := sshsig.Sign(strings.NewReader(signedText), s, sshsig.HashSHA512, namespace)
	must(t, err)
	if as != nil {
		sig.PublicKey = as
	}
	return sig.Marshal()
}

// TestKeys: each kind of key of the file is good for what its line says, and for nothing else.
func TestKeys(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]ssh.Signer{
		"Ed25519": edKey(t), "P-256": ecKey(t, elliptic.P256()), "P-384": ecKey(t, elliptic.P384()), "P-521": ecKey(t, elliptic.P521()), "RSA 3072": signerOf(t, rsaKey()),
	} {
		a, _ := authority(t, "# keys\n\n"+line(`tenant="acme",packs="crm,sql-*",capabilities="web,crm"`, s.PublicKey()))
		g, err := a.Signature(t.Context(), sign(t, s, packs.Namespace, nil), signedText, "crm")
		if err != nil || g.Tenant != "acme" || strings.Join(g.Capabilities, ",") != "crm,web" || !strings.Contains(g.Identity, "SHA256:") || g.Again(t.Context()) != nil {
			t.Errorf("%s: %v %+v", name, err, g)
		}
		for what, c := range map[string]struct {
			signature  []byte
			text, pack string
			want       string
		}{
			"another pack":      {sign(t, s, packs.Namespace, nil), signedText, "mail", "may not provide"},
			"another challenge": {sign(t, s, packs.Namespace, nil), signedText + "x", "crm", "not one of the server's challenge"},
			"a file":            {sign(t, s, "file", nil), signedText, "crm", "namespace"},
			"another key":       {sign(t, edKey(t), packs.Namespace, nil), signedText, "crm", "not among the keys"},
			"a stolen name":     {sign(t, edKey(t), packs.Namespace, s.PublicKey()), signedText, "crm", "signature"},
			"nothing":           {[]byte("x"), signedText, "crm", "not an SSH signature"},
		} {
			if _, err := a.Signature(t.Context(), c.signature, c.text, c.pack); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
	}
}

// TestWeakKeys: a key that is too short is no key, whoever has it.
func TestWeakKeys(t *testing.T) {
	t.Parallel()
	s := signerOf(t, mustRSA(2048))
	a, _ := authority(t, line("", s.PublicKey()))
	if _, err := a.Signature(t.Context(), sign(t, s, packs.Namespace, nil), signedText, "crm"); err == nil || !strings.Contains(err.Error(), "3072") {
		t.Error(err)
	}
	if _, problems := parse([]byte(line("", s.PublicKey()))); len(problems) != 1 {
		t.Errorf("%q", problems)
	}
}

// TestCertificates: a certificate counts when an authority of the file signed it for the pack, and is good now.
func TestCertificates(t *testing.T) {
	t.Parallel()
	ca, key := ecKey(t, elliptic.P256()), edKey(t)
	a, _ := authority(t, line(`cert-authority,tenant="acme"`, ca.PublicKey()))
	certify := func(change func(*ssh.Certificate), by ssh.Signer) *ssh.Certificate {
		c := &ssh.Certificate{Key: key.PublicKey(), CertType: ssh.UserCert, KeyId: "ci", ValidPrincipals: []string{"crm"}, ValidBefore: uint64(time.Now().Add(time.Hour).Unix())}
		change(c)
		must(t, c.SignCert(rand.Reader, by))
		return c
	}
	good := certify(func(*ssh.Certificate) {}, ca)
	g, err := a.Signature(t.Context(), sign(t, key, packs.Namespace, good), signedText, "crm")
	if err != nil || g.Tenant != "acme" || !strings.Contains(g.Identity, `certificate "ci"`) {
		t.Errorf("%v %+v", err, g)
	}
	for name, c := range map[string]*ssh.Certificate{
		"another authority": certify(func(*ssh.Certificate) {}, edKey(t)),
		"another pack":      certify(func(c *ssh.Certificate) { c.ValidPrincipals = []string{"mail"} }, ca),
		"no principal":      certify(func(c *ssh.Certificate) { c.ValidPrincipals = nil }, ca),
		"a host's":          certify(func(c *ssh.Certificate) { c.CertType = ssh.HostCert }, ca),
		"expired":           certify(func(c *ssh.Certificate) { c.ValidBefore = 1000 }, ca),
		"critical option":   certify(func(c *ssh.Certificate) { c.CriticalOptions = map[string]string{"force-command": "x"} }, ca),
		"changed":           func() *ssh.Certificate { c := certify(func(*ssh.Certificate) {}, ca); c.KeyId = "x"; return c }(),
	} {
		if _, err := a.Signature(t.Context(), sign(t, key, packs.Namespace, c), signedText, "crm"); sandbox.KindOf(err) != sandbox.Unauthorized {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The key itself is not in the file, and an authority's own key signs no challenge.
	for name, s := range map[string]ssh.Signer{"the key": key, "the authority": ca} {
		if _, err := a.Signature(t.Context(), sign(t, s, packs.Namespace, nil), signedText, "crm"); err == nil {
			t.Errorf("%s alone is good", name)
		}
	}
}

// TestRevoked: a key that is taken out of the file or of the state, expires or gets other rights is not good any more.
func TestRevoked(t *testing.T) {
	t.Parallel()
	s := edKey(t)
	a, _ := authority(t, line("", s.PublicKey()))
	now := time.Now()
	a.now = func() time.Time { return now }
	g, err := a.Signature(t.Context(), sign(t, s, packs.Namespace, nil), signedText, "crm")
	must(t, err)
	must(t, os.WriteFile(a.file, []byte(line(`capabilities="web"`, s.PublicKey())), 0o600))
	now = now.Add(2 * storedFor)
	if err := g.Again(t.Context()); err == nil || !strings.Contains(err.Error(), "other rights") {
		t.Errorf("other rights: %v", err)
	}
	must(t, os.Remove(a.file))
	if err := g.Again(t.Context()); err == nil {
		t.Error("a key that is not in the file any more is good")
	}
	until := now.Add(time.Hour)
	k, err := a.AddKey(t.Context(), sandbox.Caller{Actor: "ann"}, sandbox.PackKey{Key: line("", s.PublicKey()), ExpiresAt: &until})
	must(t, err)
	g, err = a.Signature(t.Context(), sign(t, s, packs.Namespace, nil), signedText, "crm")
	must(t, err)
	now = until
	if err := g.Again(t.Context()); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("expired: %v", err)
	}
	now = until.Add(-time.Minute)
	must(t, g.Again(t.Context()))
	must(t, a.DeleteKey(t.Context(), k.ID))
	if err := g.Again(t.Context()); err == nil {
		t.Error("a deleted key is good")
	}
}

// TestStoredKeys: keys are added with what they may provide, listed beside those of the file, and bad ones refused.
func TestStoredKeys(t *testing.T) {
	t.Parallel()
	ofFile, s := edKey(t), edKey(t)
	a, _ := authority(t, line("", ofFile.PublicKey()))
	good := sandbox.PackKey{Key: line("", s.PublicKey()), Tenant: "acme", Packs: []string{"sql-*"}, Capabilities: []string{"db"}}
	k, err := a.AddKey(t.Context(), sandbox.Caller{Actor: "ann"}, good)
	if err != nil || k.ID != ssh.FingerprintSHA256(s.PublicKey()) || k.Name != "a key" || k.CreatedBy != "ann" {
		t.Fatalf("%v %+v", err, k)
	}
	if list, err := a.ListKeys(t.Context()); err != nil || len(list) != 2 || list[0].File == list[1].File {
		t.Errorf("%v %+v", err, list)
	}
	past := time.Now().Add(-time.Hour)
	for name, c := range map[string]struct {
		k    sandbox.PackKey
		kind sandbox.Kind
	}{
		"again":      {good, sandbox.Conflict},
		"no key":     {sandbox.PackKey{Key: "x"}, sandbox.Invalid},
		"options":    {sandbox.PackKey{Key: line(`tenant="a"`, edKey(t).PublicKey())}, sandbox.Invalid},
		"expired":    {sandbox.PackKey{Key: line("", edKey(t).PublicKey()), ExpiresAt: &past}, sandbox.Invalid},
		"pack":       {sandbox.PackKey{Key: line("", edKey(t).PublicKey()), Packs: []string{"A B"}}, sandbox.Invalid},
		"capability": {sandbox.PackKey{Key: line("", edKey(t).PublicKey()), Capabilities: []string{"a b"}}, sandbox.Invalid},
		"tenant":     {sandbox.PackKey{Key: line("", edKey(t).PublicKey()), Tenant: "../x"}, sandbox.Invalid},
	} {
		if _, err := a.AddKey(t.Context(), sandbox.Caller{}, c.k); sandbox.KindOf(err) != c.kind {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := a.DeleteKey(t.Context(), ssh.FingerprintSHA256(ofFile.PublicKey())); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("a key of the file: %v", err)
	}
}

// TestTLS: the public key of a TLS client's certificate is good when a line names it.
func TestTLS(t *testing.T) {
	t.Parallel()
	cert := &x509.Certificate{RawSubjectPublicKeyInfo: []byte("a key"), NotAfter: time.Now().Add(time.Hour)}
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	a, _ := authority(t, `tenant="acme" x509-spki-sha256 `+hex.EncodeToString(sum[:])+" ci\n")
	if g, err := a.Certificate(t.Context(), cert); err != nil || g.Tenant != "acme" {
		t.Errorf("%v %+v", err, g)
	}
	other := *cert
	other.RawSubjectPublicKeyInfo = []byte("another key")
	if _, err := a.Certificate(t.Context(), &other); sandbox.KindOf(err) != sandbox.Unauthorized {
		t.Error(err)
	}
}

// TestBrokenLines: a line that is wrong is left out with its number, and the others count.
func TestBrokenLines(t *testing.T) {
	t.Parallel()
	good := line("", edKey(t).PublicKey())
	for _, bad := range []string{
		"x", `from="10.0.0.0/8" ` + good, `tenant=acme ` + good, `tenant="acme ` + good, `packs="A" ` + good, `expiry-time="2027" ` + good,
		"ssh-rsa " + strings.Fields(good)[1], "ssh-dss AAAA", "ssh-ed25519 !!", `cert-authority x509-spki-sha256 ` + strings.Repeat("0", 64), "x509-spki-sha256 00",
		strings.Repeat("x", maxLine+1),
	} {
		list, problems := parse([]byte(bad + "\n" + good))
		if len(list) != 1 || len(problems) != 1 || !strings.HasPrefix(problems[0], "line 1: ") {
			t.Errorf("%.60q: %d keys, %q", bad, len(list), problems)
		}
	}
	for text, want := range map[string]string{"20270102": "2027-01-02T00:00:00Z", "202701020304Z": "2027-01-02T03:04:00Z"} {
		list, problems := parse([]byte(`expiry-time="` + text + `" ` + good))
		if len(list) != 1 || list[0].ExpiresAt.Format(time.RFC3339) != want {
			t.Errorf("%s: %+v %q", text, list, problems)
		}
	}
}

// TestDocs: the file that docs/packs.md shows can be read.
func TestDocs(t *testing.T) {
	t.Parallel()
	for _, b := range docblock.Marked(t) {
		if list, problems := parse([]byte(b.Text)); len(list) != 3 || len(problems) != 0 {
			t.Errorf("%s: %d keys, %q", b, len(list), problems)
		}
	}
}

// FuzzAuthorizedPacks: whatever a file says, a key that is read is one that is strong enough, with rights that are valid.
func FuzzAuthorizedPacks(f *testing.F) {
	f.Add(line(`tenant="a",packs="b,c*",capabilities="d",expiry-time="20270101",cert-authority`, edKey(f).PublicKey()))
	f.Add(`x509-spki-sha256 ` + strings.Repeat("ab", 32) + ` name`)
	f.Add("\"a b\",=x\x00 ssh-rsa")
	f.Fuzz(func(t *testing.T, text string) {
		list, _ := parse([]byte(text))
		for _, e := range list {
			if e.key != nil && strong(e.key) != nil || checkPacks(e.Packs) != nil {
				t.Errorf("%+v", e)
			}
			again, err := parseLine(e.Key)
			if err != nil || again.ID != e.ID {
				t.Errorf("%s: %v", e.Key, err)
			}
		}
	})
}

// FuzzSignature: bytes that no key has signed are never a signature.
func FuzzSignature(f *testing.F) {
	s := edKey(f)
	good := sign(f, s, packs.Namespace, nil)
	f.Add(good)
	f.Add([]byte("SSHSIG\x00\x00\x00\x01"))
	a, _ := authority(f, line("", s.PublicKey()))
	f.Fuzz(func(t *testing.T, raw []byte) {
		_, err := a.Signature(context.Background(), raw, signedText, "crm")
		if sig, bad := readSignature(raw); err == nil && (bad != nil || fmt.Sprint(sig.PublicKey) != fmt.Sprint(s.PublicKey())) {
			t.Errorf("%q is a signature", raw)
		}
	})
}
