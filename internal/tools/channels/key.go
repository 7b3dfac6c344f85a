package channels

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/packs"
)

const (
	maxKey      = 4 << 10
	secretBytes = 32
	idBytes     = 12
)

// claims are what a key says of itself. Only Secret proves anything.
type claims struct {
	Tenant string `json:"t"`
	User   string `json:"u"`
	Thread string `json:"d"`
	Skill  string `json:"s"`
	Secret string `json:"k"`
}

// newKey returns a key for a skill of a thread, with what the thread's record keeps of it.
func newKey(t sandbox.Thread, skill string) (key string, c sandbox.SkillChannel, err error) {
	var secret [secretBytes]byte
	var id [idBytes]byte
	rand.Read(secret[:]) //nolint:errcheck // never fails (crypto/rand)
	rand.Read(id[:])     //nolint:errcheck // as above
	x := claims{t.Tenant, t.User, t.ID, skill, base64.RawURLEncoding.EncodeToString(secret[:])}
	text, err := json.Marshal(x)
	if err != nil {
		return "", c, sandbox.Wrap(sandbox.Internal, err, "the key cannot be written")
	}
	c.ID, c.Hash = hex.EncodeToString(id[:]), hashOf(x.Secret)
	return packs.ChannelKeys + base64.RawURLEncoding.EncodeToString(text), c, nil
}

func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// readKey takes a key apart.
func readKey(key string) (x claims, ok bool) {
	text, ok := strings.CutPrefix(key, packs.ChannelKeys)
	if !ok || len(text) > maxKey {
		return x, false
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || json.Unmarshal(raw, &x) != nil {
		return x, false
	}
	return x, x.Secret != ""
}

// Records are those of threads. A thread that is not there is NotFound.
type Records interface {
	Thread(ctx context.Context, t sandbox.Thread) (sandbox.ThreadInfo, error)
}

// Keys checks the keys of channels, of threads of any server.
type Keys struct {
	Records Records
	// Alive reports whether a server process is there.
	Alive func(id string) bool
}

var _ packs.Channels = Keys{}

// Channel implements packs.Channels.
func (k Keys) Channel(ctx context.Context, key string) (packs.Grant, error) {
	x, ok := readKey(key)
	t := sandbox.Thread{Owner: sandbox.Owner{Tenant: x.Tenant, User: x.User}, ID: x.Thread}
	if !ok || sandbox.CheckThreadID(t.ID) != nil {
		return packs.Grant{}, errNoKey
	}
	info, err := k.Records.Thread(ctx, t)
	if kind := sandbox.KindOf(err); kind == sandbox.NotFound || kind == sandbox.Invalid {
		return packs.Grant{}, errNoKey
	}
	if err != nil {
		return packs.Grant{}, err
	}
	c, ok := info.Channels[x.Skill]
	if !ok || subtle.ConstantTimeCompare([]byte(hashOf(x.Secret)), []byte(c.Hash)) != 1 || !k.Alive(c.Server) {
		return packs.Grant{}, errNoKey
	}
	return packs.Grant{
		Identity: "the key of the skill " + x.Skill, Tenant: t.Tenant, Packs: []string{x.Skill}, Thread: t, Channel: c.ID, Server: c.Server,
		Again: func(ctx context.Context) error {
			if _, err := k.Channel(ctx, key); sandbox.KindOf(err) == sandbox.Unauthorized {
				return err
			}
			return nil // a state that does not answer ends no stream
		},
	}, nil
}

// errNoKey says the same of a key that never was and of one that was: a stranger learns nothing by it.
var errNoKey = sandbox.Errorf(sandbox.Unauthorized, "the key is not that of a skill which is attached to a thread now; attach the skill again")
