// Package placement says which server answers a request about a thread. A request that needs the thread's sandbox is answered
// by the replica that holds the thread; on that one the answer costs no more than a look into a map.
package placement

import (
	"github.com/skerry-sandbox/skerry/internal/execution"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/lifecycle"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/ownership/drain"
)

// Options are what a Placement works with. All are needed.
type Options struct {
	Live     *instance.Map
	Execs    *execution.Registry
	Owners   *ownership.Owners
	Peers    ownership.Peers
	Drain    *drain.Drain
	Teardown *lifecycle.Teardown
}

// New returns the placement of a server.
func New(o Options) *Placement {
	return &Placement{drain: o.Drain, execs: o.Execs, live: o.Live, owners: o.Owners, peers: o.Peers, teardown: o.Teardown}
}
