package egress

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/netutil"
)

// Limits of a proxy.
const (
	maxConnections = 128
	headerWait     = 10 * time.Second
	dialWait       = 10 * time.Second
	idleWait       = 10 * time.Minute // without a byte either way
	closeWait      = time.Second
)

// Options say how a Proxy works. Log is needed.
type Options struct {
	Rules Rules
	Log   *slog.Logger
	// Refused is called for each connection that is not on the list or leads to a refused address; it may be
	// nil. It must not block.
	Refused func(target string)

	// Addresses may be connected to besides the public internet.
	Addresses []netip.Prefix

	resolver *net.Resolver // replaces the network in tests
}

// Proxy serves one sandbox. Make one with Serve.
type Proxy struct {
	o      Options
	dialer *net.Dialer
	server *http.Server
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// Serve accepts connections on ln until Close, which closes ln too.
func Serve(ln net.Listener, o Options) *Proxy {
	p := &Proxy{o: o, dialer: PublicDialer(o.Addresses)}
	p.dialer.Resolver = o.resolver
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.server = &http.Server{
		Handler: http.HandlerFunc(p.serve), ReadHeaderTimeout: headerWait, IdleTimeout: headerWait, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return p.ctx },
		ErrorLog:    slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	p.wg.Go(func() {
		if err := p.server.Serve(netutil.LimitListener(ln, maxConnections)); !errors.Is(err, http.ErrServerClosed) {
			o.Log.Error("an egress proxy stopped", "error", err)
		}
	})
	return p
}

// Close ends all connections and waits for them.
func (p *Proxy) Close() error {
	p.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	err := p.server.Shutdown(ctx)
	if err != nil {
		err = p.server.Close()
	}
	p.wg.Wait()
	return err
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	p.wg.Add(1) // the server does not wait for tunnels
	defer p.wg.Done()
	if r.Method != http.MethodConnect {
		http.Error(w, "this proxy passes CONNECT only: use https", http.StatusMethodNotAllowed)
		return
	}
	name, port, ok := p.o.Rules.Allow(r.Host)
	if !ok {
		p.refuse(w, r.Host, "is not on the list of hosts that this sandbox may reach")
		return
	}
	target := net.JoinHostPort(name, strconv.Itoa(int(port)))
	up, err := p.dialer.DialContext(r.Context(), "tcp", target)
	switch {
	case Refused(err):
		p.refuse(w, target, "leads to an address that is not on the public internet")
		return
	case err != nil:
		p.o.Log.Debug("egress: no connection", "target", target, "error", err)
		http.Error(w, "no connection to "+target, http.StatusBadGateway)
		return
	}
	defer up.Close()
	down, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, "no tunnel", http.StatusInternalServerError)
		return
	}
	defer down.Close()
	defer context.AfterFunc(p.ctx, func() { _, _ = up.Close(), down.Close() })()
	if _, err := io.WriteString(down, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	if n := buffered.Reader.Buffered(); n > 0 { // sent before our answer
		early, _ := buffered.Reader.Peek(n)
		if _, err := up.Write(early); err != nil {
			return
		}
	}
	tunnel(down, up)
}

func (p *Proxy) refuse(w http.ResponseWriter, target, why string) {
	if len(target) > maxHost+6 {
		target = target[:maxHost+6]
	}
	p.o.Log.Info("egress: refused", "target", target)
	if p.o.Refused != nil {
		p.o.Refused(target)
	}
	http.Error(w, strconv.Quote(target)+" "+why, http.StatusForbidden)
}

// tunnel copies both ways. The end of one direction is passed on, and the tunnel ends with both, or
// when nothing has come either way for idleWait.
func tunnel(a, b net.Conn) {
	var wg sync.WaitGroup
	touch := func() {
		end := time.Now().Add(idleWait)
		_, _ = a.SetDeadline(end), b.SetDeadline(end)
	}
	touch()
	for _, way := range [2][2]net.Conn{{a, b}, {b, a}} {
		wg.Go(func() {
			buf := make([]byte, 32<<10)
			for {
				n, err := way[1].Read(buf)
				if n > 0 {
					touch()
					if _, err := way[0].Write(buf[:n]); err != nil {
						break
					}
				}
				if err != nil {
					break
				}
			}
			if half, ok := way[0].(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite() // the other direction may go on
			} else {
				_ = way[0].Close()
			}
		})
	}
	wg.Wait()
}
