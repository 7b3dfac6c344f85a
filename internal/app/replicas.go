package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/ownership/drain"
	"github.com/skerry-sandbox/skerry/internal/ownership/peer"
	"github.com/skerry-sandbox/skerry/internal/ownership/placement"
	"github.com/skerry-sandbox/skerry/internal/ownership/replica"
	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar/pki"
)

// Several servers may have one data folder when they have one Redis. Each is a replica with a slot: what only
// one process may write is in folders of the slot's number, where the first slot has the plain names.

// ErrDataInUse says that another server has the data folder.
var ErrDataInUse = errors.New("another skerry server uses this data folder")

// LockData takes a data folder: for this process alone, or together with others that share it.
func LockData(dir string, shared bool) (*lockedfile.FileLock, error) {
	lock := lockedfile.TryLock
	if shared {
		lock = lockedfile.TryShare
	}
	l, err := lock(filepath.Join(dir, "lock"))
	if errors.Is(err, lockedfile.ErrBusy) {
		return nil, fmt.Errorf("%s: %w%s", dir, ErrDataInUse, whoHas(dir))
	}
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	return l, nil
}

// ReplicasDir is the folder of a data folder where its servers have their slots.
func ReplicasDir(data string) string { return filepath.Join(data, "run", "replicas") }

// whoHas names the servers of a data folder.
func whoHas(data string) string {
	living, err := replica.List(ReplicasDir(data))
	if err != nil || len(living) == 0 {
		return ""
	}
	i := living[0]
	text := fmt.Sprintf(": process %d, since %s", i.PID, i.Started.Format("2006-01-02 15:04:05 MST"))
	if i.Address != "" {
		text += ", on " + i.Address
	}
	return text + "; several servers share a data folder when all have the same --redis"
}

// openReplica makes this process one of the servers of the data folder.
func (b *builder) openReplica(ctx context.Context) (*peer.Peers, error) {
	dir := ReplicasDir(b.cfg.Data)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil { //nolint:gosec // sandboxes' sockets are below
		return nil, fmt.Errorf("data folder: %w", err)
	}
	r, err := replica.Join(dir)
	if err != nil {
		return nil, err
	}
	b.onClose(r.Leave)
	reached, err := network(ctx, b.cfg)
	if err != nil {
		return nil, err
	}
	peers := peer.New(r, reached)
	b.onClose(peers.Close)
	return peers, peers.CheckFormer(ctx)
}

// network says how servers on other machines reach this one; nil: there are none.
func network(ctx context.Context, cfg config.Config) (*peer.Network, error) {
	if cfg.PeerListen == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	a, err := authority(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &peer.Network{Listen: cfg.PeerListen, Serve: a.ServeServers(), Dial: a.DialServer()}, nil
}

// authority is that of the installation: the configured one, or one in the data folder.
func authority(ctx context.Context, cfg config.Config) (*pki.Authority, error) {
	if c := cfg.Authority; c.Cert != "" {
		return pki.Load(c.Cert, c.Key)
	}
	return pki.Open(ctx, filepath.Join(cfg.Data, "authority"))
}

// settle has the orchestrator settle what replicas left that ended.
func (d *dataFolder) settle(settle func(ownership.ExitedReplica) error) error {
	return d.peers.Settle(func(i replica.Info) error { return settle(ownership.ExitedReplica{Replica: i.ID, Slot: i.Slot}) })
}

// routing is api/rest's view of the replicas.
type routing struct {
	*placement.Placement
	*drain.Drain
	*peer.Peers
}

// ExecOwner returns the replica that knows an exec, "" when it is this one or none does. Unavailable: a replica that
// may know it does not answer, or has ended and is not settled yet.
func (p routing) ExecOwner(ctx context.Context, c sandbox.Caller, thread, exec string) (string, error) {
	t := sandbox.Thread{Owner: c.Owner, ID: thread}
	if p.HasExec(t, exec) {
		return "", nil
	}
	owner, err := p.Owner(ctx, c, thread)
	if err != nil {
		return "", err
	}
	found, sure := p.FindExec(ctx, t, exec, owner)
	switch {
	case found == "" && (!sure || p.Unsettled()) && !p.HasExec(t, exec):
		return "", sandbox.Errorf(sandbox.Unavailable, "a server that may know the exec does not answer now; try again")
	default:
		return found, nil
	}
}

// highestUID is the highest uid that a workspace or the home of an MCP server has.
func highestUID(data string) (int, error) {
	highest := 0
	for _, place := range []struct{ folders, inside string }{
		{"tenants/*/users/*/threads/*", "workspace"}, {"tenants/*/users/*/threads/*", "home"}, {"mcp-homes/*", ""},
	} {
		paths, err := filepath.Glob(filepath.Join(data, place.folders))
		if err != nil {
			return 0, err
		}
		for _, path := range paths {
			info, err := os.Lstat(filepath.Join(path, place.inside))
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
				continue
			}
			if err != nil {
				return 0, err
			}
			if st, ok := info.Sys().(*syscall.Stat_t); ok && !strings.HasPrefix(info.Name(), ".") {
				highest = max(highest, int(st.Uid))
			}
		}
	}
	return highest, nil
}
