package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"

	"github.com/skerry-sandbox/skerry/internal/api/rest"
	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/platform/tlsfiles"
)

// Deadlines of the end of a server.
const (
	// answerTimeout is how long calls may take to send their answers once all execs have ended.
	// streamTimeout is how long streams without an end may still wait for one.
	answerTimeout = 5 * time.Second
	streamTimeout = 500 * time.Millisecond
	// hardStop is how long a stop may take beyond its drain, after which the process just ends: what it leaves
	// is in order after kill -9, too.
	hardStop = 60 * time.Second
)

// listen serves on the listener until ctx ends, then drains: it goes on answering, but takes no new work, or passes it on, until the execs
// that run have ended. Then streams without an end are ended, and the listener is closed.
func (p *App) listen(ctx context.Context, h http.Handler, ready func(string)) error {
	l := p.listener
	requests, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end() // a WebSocket is none of srv's any more
	srv := &http.Server{
		BaseContext: func(net.Listener) context.Context { return requests },
		Handler:     p.traffic.count(h, p.orch.Shutdown.Draining), ReadHeaderTimeout: HeaderTimeout, IdleTimeout: IdleTimeout, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(p.log.Handler(), slog.LevelDebug), Protocols: protocols(),
	}
	stopPeers, err := p.peers.Serve(requests, exchange.FromPeer(h), routing{p.orch.Placement, p.orch.Shutdown, p.peers}, p.log)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	ended := make(chan error, 1)
	go func() {
		if p.tls != nil {
			srv.TLSConfig = p.tls.Config()
			ended <- srv.ServeTLS(l, "", "")
			return
		}
		ended <- srv.Serve(l)
	}()
	if err := p.peers.SetAddress(l.Addr().String()); err != nil {
		p.log.Warn("address not told to other servers", "error", err)
	}
	manager := serviceManager{p.log}
	manager.tell(systemd.SdNotifyReady)
	watch, endWatch := context.WithCancel(requests)
	watched := manager.watched(watch, h)
	defer func() { endWatch(); watched() }()
	ready(l.Addr().String())
	select {
	case err := <-ended:
		return errors.Join(err, stopPeers(requests))
	case <-ctx.Done():
	}
	manager.tell(systemd.SdNotifyStopping)
	p.log.Info("stopping", "drain", p.cfg.DrainTimeout)
	began := time.Now()
	stop, cancel := p.stopping(ctx)
	defer cancel()
	p.approvals.LetGo() // calls that wait for people are made again at the next server
	p.packs.leave(p.othersGoOn(stop))
	p.orch.Shutdown.Drain(stop)
	p.packs.quiet(stop)
	if p.orch.Shutdown.PassOn(context.WithoutCancel(stop)) != "" {
		p.traffic.linger(stop, began.Add(p.cfg.ShutdownDelay))
	}
	p.traffic.settle(stop)
	answer, done := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
	defer done()
	cut := time.AfterFunc(streamTimeout, end)
	defer cut.Stop()
	peersEnded := make(chan error, 1)
	go func() { peersEnded <- stopPeers(answer) }()
	if err := srv.Shutdown(answer); err != nil {
		err = srv.Close()
		return errors.Join(err, IgnoreClosed(<-ended), <-peersEnded)
	}
	return errors.Join(IgnoreClosed(<-ended), <-peersEnded)
}

// othersGoOn reports whether another server takes work.
func (p *App) othersGoOn(ctx context.Context) bool {
	others, err := p.peers.Others()
	if err != nil {
		p.log.Error("other servers not known", "error", err)
	}
	return slices.ContainsFunc(others, func(id string) bool { return p.peers.TakesWork(ctx, id) })
}

// protocols are those of the listener. Tool packs speak HTTP/2, also without TLS.
func protocols() *http.Protocols {
	p := &http.Protocols{}
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

// openListener listens, and makes sure of what the configuration took for granted: a name such as localhost may
// stand for an address that others reach, too.
func openListener(cfg config.Config, tls *tlsfiles.Server, log *slog.Logger) (net.Listener, error) {
	l, err := activated()
	if err == nil && l == nil {
		l, err = net.Listen("tcp", cfg.Listen)
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("another program listens on %s: stop it, or choose another address with --listen", cfg.Listen)
	}
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	addr, ok := l.Addr().(*net.TCPAddr)
	loopback := ok && addr.IP.IsLoopback()
	if cfg.Loopback() && !loopback {
		return nil, errors.Join(fmt.Errorf("listen: %s is %s on this machine, which others can reach: write 127.0.0.1", cfg.Listen, l.Addr()), l.Close())
	}
	if !loopback && tls == nil {
		log.Warn("credentials go over the network in the clear: configure tls, or have a proxy in front that does", "listen", cfg.Listen)
	}
	return l, nil
}

// ignoreClosedListener returns nil for the error of a listener that the HTTP server has closed.
func ignoreClosedListener(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// openTLS reads the files of the listener's TLS, and looks at them from then on.
func (b *builder) openTLS(ctx context.Context) (*tlsfiles.Server, error) {
	c := b.cfg.TLS
	if c.Cert == "" {
		return nil, nil //nolint:nilnil // http
	}
	s, err := tlsfiles.Open(tlsfiles.Files{Cert: c.Cert, Key: c.Key, ClientCA: c.ClientCA}, tlsfiles.Options{Log: b.log})
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	watch, stop := context.WithCancel(context.WithoutCancel(ctx))
	var watching sync.WaitGroup
	watching.Go(func() { s.Watch(watch) })
	b.onClose(func() error { stop(); watching.Wait(); return nil })
	return s, nil
}

// tlsCheck is what /readyz says of the certificate. Files that cannot be used do not make the server less ready.
func tlsCheck(tls *tlsfiles.Server) rest.Check {
	until, refused := tls.State()
	c := rest.Check{Name: "tls", OK: time.Now().Before(until), Detail: "the certificate is good until " + until.UTC().Format(time.RFC3339)}
	if refused != nil {
		c.Detail += "; its files changed and cannot be used, the log says why"
	}
	return c
}

// stopping is the context of a drain. It is cancelled by a second signal: then nothing is waited for.
func (p *App) stopping(ctx context.Context) (context.Context, context.CancelFunc) {
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.DrainTimeout)
	p.halt = time.AfterFunc(p.cfg.DrainTimeout+p.cfg.ShutdownDelay+hardStop, func() {
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

// IgnoreClosed returns nil for the error of an HTTP server that was closed.
func IgnoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
