package overview

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Fleet is the servers of the installation.
type Fleet interface {
	// Servers asks each of them how it is, and waits a few seconds at most.
	Servers(ctx context.Context) ([]ServerStatus, error)
	// Holder returns the id of the server that has a thread, "" when none has.
	Holder(t sandbox.Thread) (id string, err error)
}

// The states of a server.
const (
	Serving  = "serving"
	Draining = "draining"
	Silent   = "silent"
)

// ServerStatus is one server of the installation.
type ServerStatus struct {
	ID          string     `json:"id" doc:"Of its process: it has another one after a restart"`
	This        bool       `json:"this" doc:"It is the one that answers"`
	State       string     `json:"state" enum:"serving,draining,silent" doc:"draining: it is stopping, and takes no new work; silent: its process is there, and does not answer"`
	StartedAt   time.Time  `json:"started_at"`
	SeenAt      *time.Time `json:"seen_at,omitempty" doc:"When it answered; absent when it is silent"`
	Address     string     `json:"address,omitempty" doc:"Where its API listens"`
	PeerAddress string     `json:"peer_address,omitempty" doc:"Where servers of other machines reach it"`
	Slot        int        `json:"slot" doc:"Its place in the data folder, from 1"`
	// Report is what it says of itself; nil: nothing, being silent or of an older version.
	Report *ServerReport `json:"report,omitempty" doc:"What it says of itself; absent when it is silent, or of a version that says nothing"`
}

// ServerReport is what a server says of itself.
type ServerReport struct {
	Version      string         `json:"version"`
	Draining     bool           `json:"draining"`
	Threads      int            `json:"threads" doc:"That it has: those with a sandbox, and those of requests under way"`
	Sandboxes    map[string]int `json:"sandboxes" doc:"Of threads, by state"`
	MaxSandboxes int            `json:"max_sandboxes" doc:"0: no bound"`
	Execs        int            `json:"execs" doc:"That run"`
	Queue        int            `json:"queue" doc:"Requests that wait for a place"`
	Pools        []poolLevels   `json:"pools"`
}

// NewReport returns what a server with these levels says of itself.
func NewReport(version string, draining bool, threads int, l metrics.Levels) ServerReport {
	return ServerReport{
		Version: version, Draining: draining, Threads: threads,
		Sandboxes: byState(l), MaxSandboxes: l.Places, Execs: l.Execs, Queue: l.Waiting, Pools: poolsOf(l),
	}
}

func byState(l metrics.Levels) map[string]int {
	n := map[string]int{}
	for state, count := range l.Sandboxes {
		n[string(state)] = count
	}
	return n
}

func poolsOf(l metrics.Levels) []poolLevels {
	pools := make([]poolLevels, len(l.Pools))
	for i, p := range l.Pools {
		pools[i] = poolLevels(p)
	}
	return pools
}

type serversIn struct {
	route.ListIn
	Thread string `query:"thread" pattern:"^[A-Za-z0-9_-]{1,128}$" doc:"Only the server that has this thread of the caller's tenant; none when no server has it now"`
	User   string `query:"user" maxLength:"128" doc:"Whose thread it is; the caller's when absent"`
}

func (r Routes) servers(ctx context.Context, in *serversIn) (*route.Body[route.Page[ServerStatus]], error) {
	if r.Fleet == nil {
		return nil, sandbox.Errorf(sandbox.NotSupported, "this server does not know the others")
	}
	all, err := r.Fleet.Servers(ctx)
	if err != nil {
		return nil, err
	}
	if in.Thread != "" {
		t := sandbox.Thread{Owner: exchange.CallerOf(ctx).Owner, ID: in.Thread}
		if in.User != "" {
			t.User = in.User
		}
		if err := sandbox.CheckOwnerName("user", t.User); err != nil {
			return nil, err
		}
		holder, err := r.Fleet.Holder(t)
		if err != nil {
			return nil, err
		}
		all = slices.DeleteFunc(all, func(s ServerStatus) bool { return s.ID != holder })
	}
	return route.PageIn(in.ListIn, all, func(s ServerStatus) string { return s.ID })
}

func (r Routes) addServers(api *route.API) {
	route.Register(api, route.On(http.MethodGet, "/api/servers", "listServers", route.TagAdmin, route.Operators,
		"The servers of this installation: how each is, and how much it has; or the one that has a thread"), r.servers)
}
