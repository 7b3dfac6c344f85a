package signing

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/platform/keyfile"
	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
)

// Key signs.
type Key interface {
	Public() ed25519.PublicKey
	// Sign signs text within ctx.
	Sign(ctx context.Context, text []byte) ([]byte, error)
}

// private is a key in memory.
type private struct{ ed25519.PrivateKey }

func (k private) Public() ed25519.PublicKey {
	return ed25519.PublicKey(bytes.Clone(k.PrivateKey[ed25519.SeedSize:]))
}

func (k private) Sign(_ context.Context, text []byte) ([]byte, error) {
	return ed25519.Sign(k.PrivateKey, text), nil
}

const (
	privateType, publicType = "PRIVATE KEY", "PUBLIC KEY"
	maxKeyFile              = 64 << 10
)

// ParsePrivate reads a key: PKCS #8 in PEM, as openssl genpkey writes it, or the 32 bytes of its seed in base64.
func ParsePrivate(text []byte) (Key, error) {
	if block, _ := pem.Decode(text); block != nil {
		k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if ed, ok := k.(ed25519.PrivateKey); err == nil && block.Type == privateType && ok {
			return private{ed}, nil
		}
		return nil, errors.New("it is not an Ed25519 key in PKCS #8 (make one with: openssl genpkey -algorithm ed25519)")
	}
	seed, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(seed) != ed25519.SeedSize {
		return nil, errors.New("it is neither PEM nor the 32 bytes of an Ed25519 seed in base64")
	}
	return private{ed25519.NewKeyFromSeed(seed)}, nil
}

// ParsePublic reads a public key: PKIX in PEM, or its 32 bytes in base64.
func ParsePublic(text []byte) (ed25519.PublicKey, error) {
	if block, _ := pem.Decode(text); block != nil {
		k, err := x509.ParsePKIXPublicKey(block.Bytes)
		if ed, ok := k.(ed25519.PublicKey); err == nil && block.Type == publicType && ok {
			return ed, nil
		}
		return nil, errors.New("it is not an Ed25519 public key in PEM")
	}
	k, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(k) != ed25519.PublicKeySize {
		return nil, errors.New("it is neither PEM nor the 32 bytes of an Ed25519 public key in base64")
	}
	return k, nil
}

// ReadPublic reads the file of a public key.
func ReadPublic(path string) (ed25519.PublicKey, error) {
	_, text, err := lockedfile.Read(path, maxKeyFile)
	if err == nil && len(text) == 0 {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("public key %s: %w", path, err)
	}
	k, err := ParsePublic(text)
	if err != nil {
		return nil, fmt.Errorf("public key %s: %w", path, err)
	}
	return k, nil
}

// PublicPEM is a public key as a file holds it.
func PublicPEM(k ed25519.PublicKey) []byte {
	der, err := x509.MarshalPKIXPublicKey(k)
	if err != nil {
		panic(err) // for a key of the right type, it never fails
	}
	return pem.EncodeToMemory(&pem.Block{Type: publicType, Bytes: der})
}

// PublicPath is where the public key of a key file lies.
func PublicPath(path string) string { return strings.TrimSuffix(path, ".pem") + ".pub.pem" }

// File is a key in a file, which is read again when it changes: a rotation needs no restart.
type File struct {
	path, data string

	mu    sync.Mutex
	stamp lockedfile.Stamp
	key   Key
}

// OpenFile reads a key file, or makes it when it is not there; made says so. It refuses a file in the data
// folder. It also refuses a file that others than the user of this process can read or replace.
func OpenFile(path, data string) (f *File, made bool, err error) {
	f = &File{path: path, data: data}
	if _, err = os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if err := f.create(); err != nil {
			return nil, false, err
		}
		made = true
	}
	return f, made, f.read()
}

// Look is OpenFile that makes nothing: fs.ErrNotExist when the file is not there.
func Look(path, data string) (*File, error) {
	f := &File{path: path, data: data}
	return f, f.read()
}

func (f *File) create() error {
	dir := filepath.Dir(f.path)
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // public keys may be read there
		return fmt.Errorf("audit.signing_key_file: the key cannot be made: %w; name another place outside the data folder", err)
	}
	if err := keyfile.Outside(f.path, f.data); err != nil {
		return fmt.Errorf("audit.signing_key_file: %w", err)
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err == nil {
		err = writeNew(f.path, key)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) { // another server made it just now
		return fmt.Errorf("audit.signing_key_file: the key cannot be made: %w; name another place outside the data folder", err)
	}
	return nil
}

// writeNew writes a private key where no file is, as a whole, and its public key beside.
func writeNew(path string, key ed25519.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := lockedfile.Create(path, pem.EncodeToMemory(&pem.Block{Type: privateType, Bytes: der}), 0o600); err != nil {
		return err
	}
	return writePublic(path, private{key}.Public())
}

func writePublic(path string, k ed25519.PublicKey) error {
	return lockedfile.ReplaceAs(PublicPath(path), PublicPEM(k), 0o644)
}

// read reads the key when the file changed since.
func (f *File) read() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	stamp, err := lockedfile.Stat(f.path)
	if err == nil && f.key != nil && stamp == f.stamp {
		return nil
	}
	if err = keyfile.Outside(f.path, f.data); err == nil {
		err = keyfile.Private(f.path)
	}
	if err != nil {
		return fmt.Errorf("audit.signing_key_file: %w", err)
	}
	stamp, text, err := lockedfile.Read(f.path, maxKeyFile)
	if err != nil {
		return fmt.Errorf("audit.signing_key_file: %w", err)
	}
	key, err := ParsePrivate(text)
	if err != nil {
		return fmt.Errorf("audit.signing_key_file: %s: %w", f.path, err)
	}
	f.stamp, f.key = stamp, key
	return nil
}

// Public returns the key that Sign would use.
func (f *File) Public() ed25519.PublicKey {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.key.Public()
}

// Sign signs with the key that is in the file now, or with the one before while there is a bad one.
func (f *File) Sign(ctx context.Context, text []byte) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.key.Sign(ctx, text)
}

// Refresh reads the key again when its file changed.
func (f *File) Refresh() error { return f.read() }

// External asks another program for signatures: a program that listens on a unix socket (unix:/path), or a command, without
// a shell, its arguments parted by spaces. It is given the text, up to the end of its input, and answers with the
// signature, 64 bytes, in base64.
type External struct {
	how    string
	public ed25519.PublicKey
}

// NewExternal makes one. public is the public key that its signatures are checked with.
func NewExternal(how string, public ed25519.PublicKey) *External { return &External{how, public} }

// Public returns the key that signatures are checked with.
func (e *External) Public() ed25519.PublicKey { return e.public }

// Sign asks for a signature, and checks it.
func (e *External) Sign(ctx context.Context, text []byte) ([]byte, error) {
	answer, err := e.ask(ctx, text)
	if err != nil {
		return nil, fmt.Errorf("the external signer does not sign: %w", err)
	}
	sig, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(answer)))
	if err != nil || !ed25519.Verify(e.public, text, sig) {
		return nil, errors.New("the external signer returned no signature of audit.public_key_file's key")
	}
	return sig, nil
}

const maxAnswer = 4 << 10

func (e *External) ask(ctx context.Context, text []byte) ([]byte, error) {
	if path, ok := strings.CutPrefix(e.how, "unix:"); ok {
		return askSocket(ctx, path, text)
	}
	args := strings.Fields(e.how)
	if len(args) == 0 {
		return nil, errors.New("audit.signer names no command")
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // an administrator's configuration
	cmd.Stdin, cmd.WaitDelay = bytes.NewReader(text), time.Second
	var out, said limited
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w: %.200s", err, said.String())
	}
	return out.Bytes(), nil
}

// limited keeps the first bytes of what is written to it.
type limited struct{ bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	_, _ = l.Buffer.Write(p[:min(len(p), max(0, maxAnswer-l.Len()))])
	return len(p), nil
}

func askSocket(ctx context.Context, path string, text []byte) ([]byte, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	defer c.Close() //nolint:errcheck // it was read to its end
	if t, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(t); err != nil {
			return nil, err
		}
	}
	if _, err := c.Write(text); err != nil {
		return nil, err
	}
	if u, ok := c.(*net.UnixConn); ok {
		if err := u.CloseWrite(); err != nil {
			return nil, err
		}
	}
	return io.ReadAll(io.LimitReader(c, maxAnswer))
}
