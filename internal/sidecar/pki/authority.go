package pki

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Files of an authority's folder, and of a folder with one certificate. They are those of a Secret of type kubernetes.io/tls.
const (
	CertFile      = "tls.crt"
	KeyFile       = "tls.key"
	AuthorityFile = "ca.crt" // in a folder with one certificate: its signer, and the signers of its peers
)

// Names in certificates.
const (
	ClientName = "client.control.skerry"
	ServerName = "server.control.skerry"
	suffix     = ".sandbox.skerry"
)

// SandboxName is the name in the certificate of a sandbox.
func SandboxName(id sandbox.ID) string { return string(id) + suffix }

const (
	authorityTime = 20 * 365 * 24 * time.Hour
	// A sandbox may live for long, and its certificate is of use for it alone.
	sandboxTime = 2 * 365 * 24 * time.Hour
	// Those of servers live in memory, and are made anew at half of their time.
	serverTime = 7 * 24 * time.Hour
	// clockSkew is how far the clocks of machines may be apart.
	clockSkew    = time.Hour
	maxFileBytes = 64 << 10
	lockWait     = 10 * time.Second
)

// Authority signs certificates. It is safe for concurrent use.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	now  func() time.Time

	mu     sync.Mutex
	client *made
	server *made
}

// Open returns the authority of a folder, which is made with mode 0700 when it is not there. The first of all processes that
// ask for it makes it; key and certificate have mode 0600.
func Open(ctx context.Context, dir string) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	unlock, err := lockedfile.Lock(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	defer unlock()
	cert, key := filepath.Join(dir, CertFile), filepath.Join(dir, KeyFile)
	// The certificate is written last: a key without one is what a crash left.
	if _, err := os.Lstat(cert); errors.Is(err, fs.ErrNotExist) {
		if err := create(cert, key); err != nil {
			return nil, fmt.Errorf("authority: %w", err)
		}
	}
	return Load(cert, key)
}

func create(certFile, keyFile string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	now := time.Now()
	t := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "Skerry authority " + rand.Text()[:8]},
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(authorityTime),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return err
	}
	if err := lockedfile.Replace(keyFile, keyPEM); err != nil {
		return err
	}
	return lockedfile.Replace(certFile, encodeCert(raw))
}

// Load returns the authority of two PEM files that were given: an ECDSA key and the certificate of an authority.
func Load(certFile, keyFile string) (*Authority, error) {
	certPEM, err := readFile(certFile)
	if err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	keyPEM, err := readFile(keyFile)
	if err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	block, _ := pem.Decode(certPEM)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("authority: %s holds no certificate in PEM", certFile)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("authority: %s: %w", certFile, err)
	}
	key, err := decodeKey(keyPEM)
	if err != nil {
		return nil, fmt.Errorf("authority: %s: %w", keyFile, err)
	}
	now := time.Now()
	switch {
	case !cert.IsCA || cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return nil, fmt.Errorf("authority: the certificate in %s may not sign others", certFile)
	case !key.PublicKey.Equal(cert.PublicKey):
		return nil, fmt.Errorf("authority: the key in %s is not that of the certificate in %s", keyFile, certFile)
	case now.After(cert.NotAfter):
		return nil, fmt.Errorf("authority: the certificate in %s expired at %s", certFile, cert.NotAfter.UTC().Format(time.RFC3339))
	}
	return &Authority{cert: cert, key: key, now: time.Now}, nil
}

// Secret is a certificate with its key and its authority, all PEM.
type Secret struct{ Cert, Key, Authority []byte }

// Files returns the texts by the names that PodTLS reads.
func (s Secret) Files() map[string][]byte {
	return map[string][]byte{CertFile: s.Cert, KeyFile: s.Key, AuthorityFile: s.Authority}
}

// Sandbox makes a key and the certificate of one sandbox.
func (a *Authority) Sandbox(id sandbox.ID) (Secret, error) {
	if !validID(id) {
		return Secret{}, sandbox.Errorf(sandbox.Invalid, "%.100q: not the id of a sandbox (skerry- and 16 hex digits)", id)
	}
	raw, key, err := a.issue(SandboxName(id), x509.ExtKeyUsageServerAuth, sandboxTime)
	if err != nil {
		return Secret{}, err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return Secret{}, err
	}
	return Secret{Cert: encodeCert(raw), Key: keyPEM, Authority: encodeCert(a.cert.Raw)}, nil
}

func validID(id sandbox.ID) bool {
	if len(id) != len("skerry-")+16 || id[:7] != "skerry-" {
		return false
	}
	for _, c := range []byte(id[7:]) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// issue signs one certificate with one name and one usage.
func (a *Authority) issue(name string, usage x509.ExtKeyUsage, lasts time.Duration) ([]byte, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("authority: %w", err)
	}
	now := a.now()
	until := now.Add(lasts)
	if until.After(a.cert.NotAfter) {
		until = a.cert.NotAfter
	}
	t := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: now.Add(-clockSkew), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage}, BasicConstraintsValid: true,
	}
	raw, err := x509.CreateCertificate(rand.Reader, t, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("authority: %w", err)
	}
	return raw, key, nil
}

func serial() *big.Int {
	var raw [16]byte
	rand.Read(raw[:]) //nolint:errcheck // never fails
	raw[0] &= 0x7f
	return new(big.Int).SetBytes(raw[:])
}

func encodeCert(raw []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), nil
}

// decodeKey reads PKCS #8, as we write it, and SEC 1, as openssl and cert-manager do.
func decodeKey(text []byte) (*ecdsa.PrivateKey, error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case "EC PRIVATE KEY":
			return x509.ParseECPrivateKey(block.Bytes)
		case "PRIVATE KEY":
			k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			if err != nil {
				return nil, err
			}
			if ec, ok := k.(*ecdsa.PrivateKey); ok {
				return ec, nil
			}
			return nil, errors.New("the key is not an ECDSA key")
		}
	}
	return nil, errors.New("holds no private key in PEM")
}

func readFile(path string) ([]byte, error) {
	_, text, err := lockedfile.Read(path, maxFileBytes)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	case text == nil:
		return nil, fmt.Errorf("%s: no such file", path)
	case len(text) > maxFileBytes:
		return nil, fmt.Errorf("%s: larger than %d bytes", path, maxFileBytes)
	}
	return text, nil
}

// Fingerprint names the authority: what it signed is of one installation.
func (a *Authority) Fingerprint() string {
	sum := sha256.Sum256(a.cert.Raw)
	return hex.EncodeToString(sum[:8])
}
