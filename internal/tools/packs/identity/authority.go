package identity

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"

	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/tools/packs"
)

// keyStore is what an Authority needs of *store.Store.
type keyStore interface {
	PutPackKey(ctx context.Context, r store.PackKeyRecord) error
	DeletePackKey(ctx context.Context, id string) error
	PackKeys(ctx context.Context) ([]store.PackKeyRecord, error)
}

// Authority knows the keys of packs. Its methods may be called at the same time.
type Authority struct {
	file  string
	store keyStore
	log   *slog.Logger
	now   func() time.Time

	mu     sync.Mutex
	seen   lockedfile.Stamp
	read   bool
	racy   bool
	ofFile []entry
	stored []entry
	asked  time.Time // when the state was asked
}

// maxKeys bounds the keys in the state.
const maxKeys = 10_000

// storedFor is how long what the state said counts: a key that another server deletes ends within 5 s.
const storedFor = time.Second

// New returns an authority over a file, which need not exist, and a store.
func New(file string, s keyStore, log *slog.Logger) *Authority {
	return &Authority{file: file, store: s, log: log, now: time.Now}
}

var _ packs.Keys = (*Authority)(nil)

// entries returns all keys of now.
func (a *Authority) entries(ctx context.Context) ([]entry, error) {
	ofFile := a.fileKeys()
	now := a.now()
	a.mu.Lock()
	stored, fresh := a.stored, now.Sub(a.asked) < storedFor
	a.mu.Unlock()
	if !fresh {
		records, err := a.store.PackKeys(ctx)
		if err != nil {
			return nil, err
		}
		stored = make([]entry, 0, len(records))
		for _, r := range records {
			e, err := parseLine(r.Key)
			if err != nil {
				a.log.Error("a stored key of packs cannot be read", "key", r.ID, "error", err)
				continue
			}
			e.PackKey = sandbox.PackKey{
				ID: r.ID, Key: r.Key, Name: r.Name, Authority: r.Authority, Tenant: r.Tenant, Packs: r.Packs, Capabilities: r.Capabilities,
				ExpiresAt: r.ExpiresAt, CreatedAt: &r.CreatedAt, CreatedBy: r.CreatedBy,
			}
			stored = append(stored, e)
		}
		a.mu.Lock()
		a.stored, a.asked = stored, now
		a.mu.Unlock()
	}
	return slices.Concat(ofFile, stored), nil
}

// forget has the state asked again.
func (a *Authority) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = time.Time{}
}

// fileKeys returns the keys of the file. A file that cannot be read has none: a key that is not known is not good.
func (a *Authority) fileKeys() []entry {
	a.mu.Lock()
	defer a.mu.Unlock()
	stamp, err := lockedfile.Stat(a.file)
	if err == nil && a.read && stamp == a.seen && !a.racy {
		return a.ofFile
	}
	stamp, text, err := lockedfile.Read(a.file, maxFile)
	if err != nil {
		if a.read || a.seen != stamp {
			a.log.Error("the keys of packs are not good: the file cannot be read", "file", a.file, "error", err)
		}
		a.ofFile, a.read = nil, false
		return nil
	}
	changed := !a.read || stamp != a.seen
	list, problems := parse(text)
	if changed {
		for _, p := range problems {
			a.log.Warn("authorized_packs: a line is left out", "file", a.file, "problem", p)
		}
	}
	a.ofFile, a.seen, a.read, a.racy = list, stamp, true, stamp.Racy(a.now())
	return list
}

// Signature implements packs.Keys.
func (a *Authority) Signature(ctx context.Context, signature []byte, text, pack string) (packs.Grant, error) {
	sig, err := readSignature(signature)
	if err != nil {
		return packs.Grant{}, refused("the signature cannot be used: %s", err)
	}
	e, err := a.find(ctx, sig.PublicKey, pack)
	if err != nil {
		return packs.Grant{}, err
	}
	if err := sshsig.Verify(strings.NewReader(text), sig, sig.PublicKey, sig.HashAlgorithm, packs.Namespace); err != nil {
		return packs.Grant{}, refused("the signature is not one of the server's challenge by this key: %s", err)
	}
	return a.grant(e, describe(sig.PublicKey), func(ctx context.Context) (entry, error) { return a.find(ctx, sig.PublicKey, pack) }), nil
}

// readSignature reads a signature of a key that is strong enough.
func readSignature(raw []byte) (sig *sshsig.Signature, err error) {
	if sig, err = sshsig.ParseSignature(raw); err != nil {
		return nil, fmt.Errorf("it is not an SSH signature (SSHSIG)")
	}
	key := sig.PublicKey
	if cert, ok := key.(*ssh.Certificate); ok {
		key = cert.Key
	}
	if err := strong(key); err != nil {
		return nil, err
	}
	if key.Type() == ssh.KeyAlgoRSA && sig.Signature.Format != ssh.KeyAlgoRSASHA256 && sig.Signature.Format != ssh.KeyAlgoRSASHA512 {
		return nil, fmt.Errorf("it has the format %.40q: RSA signs with SHA-2", sig.Signature.Format)
	}
	if sig.Namespace != packs.Namespace {
		return nil, fmt.Errorf("it is of the namespace %.60q, and not of %q", sig.Namespace, packs.Namespace)
	}
	return sig, nil
}

// find returns the entry of a key, or of the authority that signed its certificate, for a pack.
func (a *Authority) find(ctx context.Context, key ssh.PublicKey, pack string) (entry, error) {
	all, err := a.entries(ctx)
	if err != nil {
		return entry{}, err
	}
	cert, certified := key.(*ssh.Certificate)
	wanted := key
	if certified {
		wanted = cert.SignatureKey
	}
	raw := wanted.Marshal()
	matches := slices.DeleteFunc(all, func(e entry) bool {
		return e.key == nil || e.Authority != certified || !bytes.Equal(e.key.Marshal(), raw)
	})
	if len(matches) == 0 && certified {
		return entry{}, refused("no authority of packs has signed the certificate of %s", describe(key))
	}
	e, err := a.choose(matches, describe(key), pack)
	if err == nil && certified {
		err = a.checkCertificate(cert, pack)
	}
	return e, err
}

// choose returns the entry that is good for a pack.
func (a *Authority) choose(matches []entry, who, pack string) (entry, error) {
	problem := refused("%s is not among the keys of packs", who)
	for _, e := range matches {
		switch {
		case e.ExpiresAt != nil && !a.now().Before(*e.ExpiresAt):
			problem = refused("%s expired at %s", who, e.ExpiresAt.UTC().Format(time.RFC3339))
		case pack != "" && !packs.Covers(e.Packs, pack):
			problem = sandbox.Errorf(sandbox.Forbidden, "%s may not provide the pack %q: it is for %s", who, pack, strings.Join(e.Packs, ", "))
		default:
			return e, nil
		}
	}
	return entry{}, problem
}

// checkCertificate checks a certificate whose authority is known. Its principals are names of packs.
func (a *Authority) checkCertificate(c *ssh.Certificate, pack string) error {
	if c.CertType != ssh.UserCert || len(c.ValidPrincipals) == 0 {
		return refused("the certificate is not one of a user with principals: ssh-keygen -s CA -I ID -n PACK KEY.pub makes one")
	}
	if err := strong(c.SignatureKey); err != nil {
		return refused("the authority of the certificate: %s", err)
	}
	if f := c.Signature.Format; c.SignatureKey.Type() == ssh.KeyAlgoRSA && f != ssh.KeyAlgoRSASHA256 && f != ssh.KeyAlgoRSASHA512 {
		return refused("the certificate is signed with %.40q: RSA signs with SHA-2", f)
	}
	checker := &ssh.CertChecker{Clock: a.now}
	if err := checker.CheckCert(pack, c); err != nil {
		return refused("the certificate is not good for the pack %q: %s", pack, strings.TrimPrefix(err.Error(), "ssh: "))
	}
	return nil
}

// Certificate implements packs.Keys.
func (a *Authority) Certificate(ctx context.Context, c *x509.Certificate) (packs.Grant, error) {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	spki := hex.EncodeToString(sum[:])
	find := func(ctx context.Context) (entry, error) {
		if now := a.now(); now.After(c.NotAfter) {
			return entry{}, refused("the certificate expired at %s", c.NotAfter.UTC().Format(time.RFC3339))
		}
		all, err := a.entries(ctx)
		if err != nil {
			return entry{}, err
		}
		return a.choose(slices.DeleteFunc(all, func(e entry) bool { return e.spki != spki }), "the certificate with the public key "+spki, "")
	}
	e, err := find(ctx)
	if err != nil {
		return packs.Grant{}, err
	}
	return a.grant(e, "certificate "+spki, find), nil
}

// grant is what an entry may provide, as long as it is found again as it is.
func (a *Authority) grant(e entry, who string, find func(context.Context) (entry, error)) packs.Grant {
	return packs.Grant{
		Identity: who, Tenant: e.Tenant, Packs: e.Packs, Capabilities: e.Capabilities,
		Again: func(ctx context.Context) error {
			now, err := find(ctx)
			kind := sandbox.KindOf(err)
			switch {
			case kind == sandbox.Unauthorized || kind == sandbox.Forbidden:
				return err
			case err != nil:
				a.log.Warn("whether the key of a pack is still good is not known now", "key", who, "error", err)
				return nil
			case now.Tenant != e.Tenant || !slices.Equal(now.Capabilities, e.Capabilities) || !slices.Equal(now.Packs, e.Packs):
				return refused("%s has other rights now", who)
			}
			return nil
		},
	}
}

func refused(format string, args ...any) error {
	return sandbox.Errorf(sandbox.Unauthorized, format, args...)
}

// describe names a key for people.
func describe(key ssh.PublicKey) string {
	if cert, ok := key.(*ssh.Certificate); ok {
		return fmt.Sprintf("the certificate %.80q of the SSH key %s", cert.KeyId, ssh.FingerprintSHA256(cert.Key))
	}
	return "the SSH key " + ssh.FingerprintSHA256(key)
}

// ListKeys returns all keys, those of the file first.
func (a *Authority) ListKeys(ctx context.Context) ([]sandbox.PackKey, error) {
	all, err := a.entries(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]sandbox.PackKey, len(all))
	for i, e := range all {
		list[i] = e.PackKey
	}
	slices.SortStableFunc(list, func(x, y sandbox.PackKey) int { return cmp.Compare(x.ID, y.ID) })
	return list, nil
}

// AddKey stores a key. An error is Invalid, or Conflict when the state has the key.
func (a *Authority) AddKey(ctx context.Context, c sandbox.Caller, k sandbox.PackKey) (sandbox.PackKey, error) {
	e, err := parseLine(strings.TrimSpace(k.Key))
	if err != nil {
		return k, sandbox.Errorf(sandbox.Invalid, "key: %s", err)
	}
	if e.Authority || e.Tenant != "" || e.Packs != nil || e.Capabilities != nil || e.ExpiresAt != nil {
		return k, sandbox.Errorf(sandbox.Invalid, "key: write type, base64 and a name; options are fields of their own")
	}
	k.ID, k.Key, k.Name = e.ID, e.Key, cmp.Or(k.Name, e.Name)
	if k.Tenant != "" {
		if err := sandbox.CheckOwnerName("tenant", k.Tenant); err != nil {
			return k, err
		}
	}
	if k.Capabilities, err = sandbox.CheckCapabilities(k.Capabilities); err != nil {
		return k, err
	}
	if len(k.Packs) == 0 {
		k.Packs = nil
	}
	now := a.now().UTC()
	switch {
	case checkPacks(k.Packs) != nil:
		return k, checkPacks(k.Packs)
	case len(k.Name) > maxName || !utf8Printable(k.Name):
		return k, sandbox.Errorf(sandbox.Invalid, "name: use at most %d printable characters", maxName)
	case k.Authority && e.spki != "":
		return k, sandbox.Errorf(sandbox.Invalid, "cert_authority: an authority of TLS certificates is that of the listener")
	case k.ExpiresAt != nil && !k.ExpiresAt.After(now):
		return k, sandbox.Errorf(sandbox.Invalid, "expires_at: %s has passed", k.ExpiresAt.UTC().Format(time.RFC3339))
	}
	stored, err := a.store.PackKeys(ctx)
	switch {
	case err != nil:
		return k, err
	case len(stored) >= maxKeys:
		return k, sandbox.Errorf(sandbox.QuotaExceeded, "there are %d keys: delete some", len(stored))
	case slices.ContainsFunc(stored, func(r store.PackKeyRecord) bool { return r.ID == k.ID }):
		return k, sandbox.Errorf(sandbox.Conflict, "the key %s is there: delete it before you add it with other rights", k.ID)
	}
	k.CreatedAt, k.CreatedBy, k.File = &now, c.Actor, false
	err = a.store.PutPackKey(ctx, store.PackKeyRecord{
		ID: k.ID, Key: k.Key, Name: k.Name, Authority: k.Authority, Tenant: k.Tenant, Packs: k.Packs, Capabilities: k.Capabilities,
		ExpiresAt: k.ExpiresAt, CreatedAt: now, CreatedBy: k.CreatedBy,
	})
	a.forget()
	return k, err
}

// DeleteKey takes a key out of the state. What it provides on this server ends within 5 s.
func (a *Authority) DeleteKey(ctx context.Context, id string) error {
	err := a.store.DeletePackKey(ctx, id)
	a.forget()
	if sandbox.KindOf(err) == sandbox.NotFound && slices.ContainsFunc(a.fileKeys(), func(e entry) bool { return e.ID == id }) {
		return sandbox.Errorf(sandbox.Conflict, "the key %.80q is in the file authorized_packs: take it out there", id)
	}
	return err
}

func utf8Printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == '\uFFFD' || r == 0x7f })
}
