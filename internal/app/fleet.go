package app

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/rest/overview"
	"github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/orchestrator"
	"github.com/skerry-sandbox/skerry/internal/ownership/peer"
	"github.com/skerry-sandbox/skerry/internal/ownership/replica"
	"github.com/skerry-sandbox/skerry/internal/platform/buildinfo"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// reportQuestion is what servers ask each other for their reports.
const reportQuestion = "report"

// fleet is the servers of the data folder. A server without others is one of one.
type fleet struct {
	peers  *peer.Peers
	orch   *orchestrator.Orchestrator
	levels func() (metrics.Levels, bool)
}

// openFleet has this server answer the others' questions about itself.
func openFleet(p *peer.Peers, orch *orchestrator.Orchestrator, levels func() (metrics.Levels, bool)) *fleet {
	f := &fleet{peers: p, orch: orch, levels: levels}
	p.Handle(peer.Prefix+reportQuestion, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(f.report()) // the other one is gone when this fails
	}))
	return f
}

// report is what this server says of itself.
func (f *fleet) report() overview.ServerReport {
	levels, _ := f.levels()
	return overview.NewReport(buildinfo.Version(), f.orch.Shutdown.Draining(), f.orch.Placement.Owned(), levels)
}

// Servers asks all servers at once, so that it takes no longer than the slowest of them.
func (f *fleet) Servers(ctx context.Context) ([]overview.ServerStatus, error) {
	living, err := f.peers.All()
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the servers cannot be listed")
	}
	all := make([]overview.ServerStatus, len(living))
	var asked sync.WaitGroup
	for i, info := range living {
		asked.Go(func() { all[i] = f.status(ctx, info) })
	}
	asked.Wait()
	return all, nil
}

// status asks one server.
func (f *fleet) status(ctx context.Context, i replica.Info) overview.ServerStatus {
	s := overview.ServerStatus{
		ID: i.ID, This: i.ID == f.peers.ID(), State: overview.Serving, StartedAt: i.Started, Address: i.Address, PeerAddress: i.Peer, Slot: i.Slot,
	}
	if s.This {
		own := f.report()
		s.Report = &own
	} else if text, err := f.peers.Read(ctx, i.ID, reportQuestion); err == nil {
		var theirs overview.ServerReport
		if json.Unmarshal(text, &theirs) == nil {
			s.Report = &theirs
		}
	} else if !f.peers.Answers(ctx, i.ID) { // one of an older version answers, and has no report
		s.State = overview.Silent
		return s
	}
	if s.Report != nil && s.Report.Draining {
		s.State = overview.Draining
	}
	now := time.Now().UTC()
	s.SeenAt = &now
	return s
}

// Holder returns the server that has a thread.
func (f *fleet) Holder(t sandbox.Thread) (string, error) { return f.orch.Placement.Holder(t) }
