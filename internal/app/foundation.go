package app

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/auth"
	"github.com/skerry-sandbox/skerry/internal/api/auth/oidc"
	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/observe/tracing"
	"github.com/skerry-sandbox/skerry/internal/ownership/peer"
	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/store"
	"github.com/skerry-sandbox/skerry/internal/store/format"
)

// foundation is what the rest of a server stands on: the data folder, the state, the record and the secrets.
type foundation struct {
	data   *dataFolder
	store  *store.Store
	audits *auditLogs
	audit  *audit.Log // that of this server
	keys   *auth.Keys
	logins *oidc.Issuers // nil: there are no identity providers
	*vault
	tracer *tracing.Tracer // nil: nothing is traced
}

// openFoundation opens it. openVault opens the keys that seal what is kept, and the secrets.
func (b *builder) openFoundation(ctx context.Context, openVault func(*store.Store) (*vault, error)) (*foundation, error) {
	data, err := b.openData(ctx)
	if err != nil {
		return nil, err
	}
	f := &foundation{data: data}
	if f.store, err = OpenStore(ctx, b.cfg, data.peers, b.log); err != nil {
		return nil, err
	}
	b.onClose(f.store.Close)
	if err := awaitStore(ctx, f.store, b.log); err != nil {
		return nil, err
	}
	signer, err := openSigner(ctx, b.cfg, b.log)
	if err != nil {
		return nil, err
	}
	f.audits = &auditLogs{cfg: b.cfg, store: f.store, signer: signer, log: b.log}
	if f.audit, err = f.audits.open(data.peers.Slot()); err != nil {
		return nil, err
	}
	b.onClose(f.audit.Close)
	f.audit.Index()
	o := auth.Options{}
	if len(b.cfg.OIDC) > 0 {
		issuers, err := openIssuers(b.cfg.OIDC, b.log)
		if err != nil {
			return nil, err
		}
		b.onClose(issuers.Close)
		o.Tokens, f.logins = issuers, issuers
	}
	f.keys = auth.New(f.store, o)
	f.vault, err = openVault(f.store)
	return f, err
}

// dataFolder is the data folder, as this server has it.
type dataFolder struct {
	path    string
	install string // names the folder; sandboxes bear it
	peers   *peer.Peers
}

// ofSlot is the name of a file or folder that only this replica writes.
func (d *dataFolder) ofSlot(name string) string {
	if d.peers.Slot() == 1 {
		return name
	}
	return fmt.Sprintf("%s-%d", name, d.peers.Slot())
}

// alone reports whether no other server has the data folder now.
func (d *dataFolder) alone() bool {
	others, err := d.peers.Peers()
	return err == nil && len(others) == 0
}

// MakeData makes a data folder that is missing. It refuses one that all users of the host share, as /tmp: what belongs to the
// server there would change for all of them, its mode first.
func MakeData(dir string) error {
	if info, err := os.Stat(dir); err == nil && info.Mode()&os.ModeSticky != 0 {
		return fmt.Errorf("data folder: all users of this machine share %s; name a folder of Skerry's own, as %s", dir, filepath.Join(dir, "skerry"))
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	return nil
}

// openData makes the data folder ours: with a state of its own no other server may use it at the same time.
func (b *builder) openData(ctx context.Context) (*dataFolder, error) {
	if err := MakeData(b.cfg.Data); err != nil {
		return nil, err
	}
	// Sandboxes and MCP servers pass through it with uids of their own; only root lists it.
	if err := os.Chmod(b.cfg.Data, 0o711); err != nil { //nolint:gosec // see above
		return nil, fmt.Errorf("data folder: %w", err)
	}
	lock, err := LockData(b.cfg.Data, b.cfg.Redis != "")
	if err != nil {
		return nil, err
	}
	b.onClose(lock.Unlock)
	if err := format.CheckFolder(b.cfg.Data); err != nil {
		return nil, err
	}
	peers, err := b.openReplica(ctx)
	if err != nil {
		return nil, err
	}
	install, err := installID(filepath.Join(b.cfg.Data, "install-id"))
	return &dataFolder{path: b.cfg.Data, install: install, peers: peers}, err
}

// installID names the data folder; sandboxes bear it, so that a server touches only its own.
func installID(file string) (string, error) {
	raw, err := os.ReadFile(file)
	if err == nil && len(strings.TrimSpace(string(raw))) == 16 {
		return strings.TrimSpace(string(raw)), nil
	}
	if err == nil {
		return "", fmt.Errorf("data folder: %s does not hold an id", filepath.Base(file))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("data folder: %w", err)
	}
	var id [8]byte
	rand.Read(id[:]) //nolint:errcheck // never fails
	text := hex.EncodeToString(id[:])
	if err := lockedfile.Create(file, []byte(text+"\n"), 0o600); errors.Is(err, fs.ErrExist) {
		return installID(file) // of another server, which begins at the same time
	} else if err != nil {
		return "", fmt.Errorf("data folder: %w", err)
	}
	return text, nil
}

// storeWait is how long a start waits for Redis. Where a cluster starts both, or opens a new pod's network a moment
// after it runs, either may be late.
const storeWait = 20 * time.Second

// awaitStore waits until the state answers.
func awaitStore(ctx context.Context, s *store.Store, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	for tries := 0; ; tries++ {
		err := s.Ping(ctx)
		if err == nil {
			return s.CheckFormat(ctx)
		}
		if tries == 0 {
			log.Warn("the state store does not answer; waiting for it", "at_most", storeWait, "error", err)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// OpenStore opens the state. peers is nil in what is no server.
func OpenStore(ctx context.Context, cfg config.Config, peers *peer.Peers, log *slog.Logger) (*store.Store, error) {
	o := store.Options{
		URL: cfg.Redis, Journal: filepath.Join(cfg.Data, "state.jsonl"), Log: log,
		HighestUID: func() (int, error) { return highestUID(cfg.Data) },
	}
	if peers != nil { // a server, which has looked at its folder, and waits for Redis
		o.Replica, o.Alive = peers.ID(), peers.Alive
		return store.Open(ctx, o)
	}
	if cfg.Redis == "" {
		if err := format.CheckFolder(cfg.Data); err != nil {
			return nil, err
		}
	}
	s, err := store.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := s.CheckFormat(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}
