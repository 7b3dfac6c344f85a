package login

import (
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// keys is a Sealer with a number, which rises when it is exchanged.
type keys struct{ n string }

func (k *keys) Seal(purpose string, plain []byte) ([]byte, error) {
	return []byte("key" + k.n + " " + purpose + "\n" + hex.EncodeToString(plain)), nil
}

func (k *keys) Open(purpose string, sealed []byte) ([]byte, error) {
	text, ok := strings.CutPrefix(string(sealed[min(4, len(sealed)):]), " "+purpose+"\n")
	if !ok {
		return nil, errors.New("sealed as something else")
	}
	return hex.DecodeString(text)
}

func (k *keys) stale(_ string, sealed []byte) bool {
	return !strings.HasPrefix(string(sealed), "key"+k.n)
}

// Logins of a former version are read, encrypted at the next start, and again for another key. None moves to another place.
func TestRecordsAreEncrypted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logins")
	alice, bob := sandbox.Owner{Tenant: "acme", User: "alice"}, sandbox.Owner{Tenant: "acme", User: "bob"}
	const token = "token-0123456789"
	old := OpenVault(dir, nil)
	s := old.slot("crm", "https://crm.example", "", alice)
	if err := s.put(&record{Server: "crm", Access: token}); err != nil {
		t.Fatal(err)
	}
	file := s.path(".json")
	k := &keys{"1"}
	v := OpenVault(dir, k)
	has := func(o sandbox.Owner) (string, error) {
		s := v.slot("crm", "https://crm.example", "", o)
		defer s.leave()
		r, err := s.current()
		if err != nil {
			return "", err
		}
		return r.Access, nil
	}
	if got, err := has(alice); got != token || err != nil {
		t.Errorf("before: %q, %v", got, err)
	}
	for _, key := range []string{"1", "2"} {
		k.n = key
		if changed, bad, err := v.Renew(t.Context(), k.stale); changed != 1 || bad != 0 || err != nil {
			t.Errorf("key %s: %d, %d, %v", key, changed, bad, err)
		}
		if changed, _, err := v.Renew(t.Context(), k.stale); changed != 0 || err != nil {
			t.Errorf("key %s again: %d, %v", key, changed, err)
		}
		text, err := os.ReadFile(file)
		if err != nil || strings.Contains(string(text), token) || !strings.HasPrefix(string(text), "key"+key) {
			t.Errorf("%s, %v", text, err)
		}
		if got, err := has(alice); got != token || err != nil {
			t.Errorf("key %s: %q, %v", key, got, err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	other := v.slot("crm", "https://crm.example", "", bob)
	if err := os.WriteFile(other.path(".json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := has(bob); got != "" || !errors.Is(err, sandbox.Unavailable) || strings.Contains(err.Error(), token) {
		t.Errorf("bob has alice's login: %q, %v", got, err)
	}
	if changed, bad, err := v.Renew(t.Context(), k.stale); changed != 0 || err != nil {
		t.Errorf("%d, %d, %v", changed, bad, err)
	}
	if err := v.ForgetServer("crm"); err != nil {
		t.Fatal(err)
	}
	if got, err := has(alice); got != "" || err != nil {
		t.Errorf("after: %q, %v", got, err)
	}
}
