package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/skerry-sandbox/skerry/internal/httpserver"
)

// Deadlines of the end of a server.
const (
	// answerTimeout is how long calls may take to send their answers once all execs have ended, streamTimeout
	// how long streams that have no end may still wait for one.
	answerTimeout = 5 * time.Second
	streamTimeout = 500 * time.Millisecond
	// hardStop is how long a stop may take beyond its drain, after which the process just ends: what it leaves
	// is in order after kill -9, too.
	hardStop = 60 * time.Second
)

// listen serves until ctx ends, then drains: it goes on answering, but takes no new work, until the execs
// that run have ended. Then streams without an end are ended, and the listener is closed.
func (p *parts) listen(ctx context.Context, h http.Handler, ready func(string)) error {
	l, err := net.Listen("tcp", p.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	requests, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end() // a WebSocket is none of srv's any more
	srv := &http.Server{
		BaseContext: func(net.Listener) context.Context { return requests },
		Handler:     h, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
	}
	stopPeers, err := p.peers.Serve(requests, httpserver.FromPeer(h), p.orch.HasExec, p.log)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	if err := p.peers.SetAddress(l.Addr().String()); err != nil {
		p.log.Warn("address not told to other servers", "error", err)
	}
	ready(l.Addr().String())
	select {
	case err := <-ended:
		return errors.Join(err, stopPeers(requests))
	case <-ctx.Done():
	}
	p.log.Info("stopping", "drain", p.cfg.DrainTimeout)
	stop, cancel := p.stopping(ctx)
	defer cancel()
	p.approvals.LetGo() // calls that wait for people are made again at the next server
	p.orch.Drain(stop)
	answer, done := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
	defer done()
	cut := time.AfterFunc(streamTimeout, end)
	defer cut.Stop()
	peersEnded := make(chan error, 1)
	go func() { peersEnded <- stopPeers(answer) }()
	if err := srv.Shutdown(answer); err != nil {
		err = srv.Close()
		return errors.Join(err, ignoreClosed(<-ended), <-peersEnded)
	}
	return errors.Join(ignoreClosed(<-ended), <-peersEnded)
}

// stopping is the context of a drain. It is cancelled by a second signal: then nothing is waited for.
func (p *parts) stopping(ctx context.Context) (context.Context, context.CancelFunc) {
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.DrainTimeout)
	p.halt = time.AfterFunc(p.cfg.DrainTimeout+hardStop, func() {
		p.log.Error("the server did not stop in time and ends as if it were killed")
		os.Exit(1)
	})
	again := make(chan os.Signal, 1)
	signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	go func() {
		defer signal.Stop(again)
		select {
		case <-again:
			p.log.Info("stopping at once")
			cancel()
		case <-stop.Done():
		}
	}()
	return stop, cancel
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
