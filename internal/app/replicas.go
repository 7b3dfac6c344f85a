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
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/api/rest"
	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/audit/archive"
	"github.com/skerry-sandbox/skerry/internal/audit/sink"
	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/ownership/drain"
	"github.com/skerry-sandbox/skerry/internal/ownership/peer"
	"github.com/skerry-sandbox/skerry/internal/ownership/placement"
	"github.com/skerry-sandbox/skerry/internal/ownership/replica"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar/pki"
)

// Several servers may have one data folder when they have one Redis. Each is a replica with a slot: what only
// one process may write is in folders of the slot's number, where the first slot has the plain names.

// ErrDataInUse says that another server has the data folder.
var ErrDataInUse = errors.New("another skerry server uses this data folder")

// LockData takes a data folder: for this process alone, or together with others that share it.
func LockData(dir string, shared bool) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	how := unix.LOCK_EX
	if shared {
		how = unix.LOCK_SH
	}
	if err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w%s", dir, ErrDataInUse, whoHas(dir)), f.Close())
	}
	return f, nil
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
func (p *App) openReplica(ctx context.Context) error {
	dir := ReplicasDir(p.cfg.Data)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil { //nolint:gosec // sandboxes' sockets are below
		return fmt.Errorf("data folder: %w", err)
	}
	r, err := replica.Join(dir)
	if err != nil {
		return err
	}
	p.onClose(r.Leave)
	network, err := p.network(ctx)
	if err != nil {
		return err
	}
	p.peers = peer.New(r, network)
	p.onClose(p.peers.Close)
	return p.peers.CheckFormer(ctx)
}

// network says how servers on other machines reach this one; nil: there are none.
func (p *App) network(ctx context.Context) (*peer.Network, error) {
	if p.cfg.PeerListen == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	a, err := p.authority(ctx)
	if err != nil {
		return nil, err
	}
	return &peer.Network{Listen: p.cfg.PeerListen, Serve: a.ServeServers(), Dial: a.DialServer()}, nil
}

// authority is that of the installation: the configured one, or one in the data folder.
func (p *App) authority(ctx context.Context) (*pki.Authority, error) {
	if c := p.cfg.Authority; c.Cert != "" {
		return pki.Load(c.Cert, c.Key)
	}
	return pki.Open(ctx, filepath.Join(p.cfg.Data, "authority"))
}

// ofSlot is the name of a file or folder that only this replica writes.
func (p *App) ofSlot(name string) string {
	if p.peers == nil || p.peers.Slot() == 1 { // doctor looks at some parts without a server
		return name
	}
	return fmt.Sprintf("%s-%d", name, p.peers.Slot())
}

// onlyServer reports whether no other server has the data folder now.
func (p *App) onlyServer() bool {
	if p.peers == nil {
		return true
	}
	others, err := p.peers.Peers()
	return err == nil && len(others) == 0
}

// openAudit opens the audit log of a slot.
func (p *App) openAudit(slot int) (*audit.Log, error) {
	options := audit.Options{Dir: filepath.Join(p.cfg.Data, "audit"), Slot: slot, Keep: auditKeep(p.cfg.Audit), Log: p.log}
	if !p.store.Embedded() {
		options.Redis = p.store.Redis()
	}
	var err error
	if options.Sinks, err = AuditSinks(p.cfg.Audit); err != nil {
		return nil, err
	}
	if options.Archive, err = auditArchive(p.cfg); err != nil {
		return nil, err
	}
	options.KeepSegments = time.Duration(p.cfg.Audit.KeepSegments) * 24 * time.Hour
	options.FailOpen = p.cfg.Audit.OnFailure == "open"
	p.signer.sign(&options)
	return audit.Open(options)
}

// AuditSinks are those of one log, which closes them.
func AuditSinks(c config.Audit) (sinks []audit.Sink, err error) {
	if c.Webhook != "" {
		allowed, err := c.Prefixes()
		if err != nil {
			return nil, err
		}
		w, err := sink.NewWebhook(c.Webhook, []byte(c.WebhookSecret), allowed)
		if err != nil {
			return nil, err
		}
		sinks = append(sinks, w)
	}
	if c.Syslog != "" {
		s, err := sink.NewSyslog(c.Syslog)
		if err != nil {
			return nil, err
		}
		sinks = append(sinks, s)
	}
	return sinks, nil
}

// auditArchive is that of one log, which closes it; nil: there is none.
func auditArchive(c config.Config) (audit.Archive, error) {
	address := c.Audit.Archive
	switch {
	case address == "":
		return nil, nil //nolint:nilnil // there is none
	case !strings.HasPrefix(address, "s3://"):
		return archive.NewFolder(address), nil
	}
	o, err := S3Options(c.S3)
	if err != nil {
		return nil, err
	}
	o.MaxBytes = 0 // reading stops behind the size of the segment
	b, err := archive.NewBucket(address, o)
	if err != nil {
		return nil, fmt.Errorf("audit.archive: %w", err)
	}
	return b, nil
}

// archiveCheck tells how far the audit archive is. A server whose archive is away serves all the same.
func (p *App) archiveCheck() []rest.Check {
	s, ok := p.audit.Archive()
	if !ok {
		return nil
	}
	c := rest.Check{Name: "audit archive", OK: true, Detail: fmt.Sprintf("%d segments behind", s.Behind)}
	if s.Err != nil { // /readyz needs no key: why is in the server's log
		c.Detail += "; archiving fails now"
	}
	return []rest.Check{c}
}

// sinkChecks tell how far the sinks are. A server whose sinks are away serves all the same.
func (p *App) sinkChecks() (checks []rest.Check) {
	for _, s := range p.audit.Sinks() {
		c := rest.Check{Name: "audit " + s.Name, OK: true, Detail: fmt.Sprintf("%d records behind", s.Behind)}
		if s.Error != "" {
			c.Detail += "; it does not take them now"
		}
		checks = append(checks, c)
	}
	return checks
}

func auditKeep(c config.Audit) audit.Keep {
	return audit.Keep{Records: int64(c.RedisRecords), Bytes: int64(c.RedisMiB) << 20, Age: c.RedisAge}
}

// settleReplicas has the orchestrator settle what replicas left that ended.
func (p *App) settleReplicas(settle func(ownership.ExitedReplica) error) error {
	return p.peers.Settle(func(i replica.Info) error { return settle(ownership.ExitedReplica{Replica: i.ID, Slot: i.Slot}) })
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

// checkUIDs keeps what has a uid from sharing it, whatever the state has lost. It comes after the disk, which may bring
// the threads' folders with it.
func (p *App) checkUIDs(ctx context.Context) error { return p.store.CheckUIDs(ctx) }

// highestUID is the highest uid that a workspace or the home of an MCP server has.
func highestUID(data string) (int, error) {
	highest := 0
	for _, place := range []struct{ folders, inside string }{{"tenants/*/users/*/threads/*", "workspace"}, {"mcp-homes/*", ""}} {
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
