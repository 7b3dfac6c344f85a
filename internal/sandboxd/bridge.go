package sandboxd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"
)

const (
	maxBridgeConns = 256
	// bridgeWait is how long a connection waits for the bridge's socket: the server may be starting
	// again.
	bridgeWait = 2 * time.Second
)

// bridgeRefusal is what a caller reads when the bridge does not answer. Port 9876 speaks HTTP.
var bridgeRefusal = func() string {
	body := `{"error":{"code":"unavailable","message":"the tool bridge does not answer"}}`
	return fmt.Sprintf("HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)
}()

// bridge passes TCP connections on to a unix socket, byte by byte.
type bridge struct {
	addr     string
	optional bool // give up when the address cannot be had for some seconds
	socket   string
	dialer   Dialer
	log      *slog.Logger
	bound    func(net.Addr) // tells a test where it listens
}

// run listens until ctx ends, and returns when every connection is closed.
func (b *bridge) run(ctx context.Context) {
	ln := b.listen(ctx)
	if ln == nil {
		return
	}
	defer context.AfterFunc(ctx, func() { _ = ln.Close() })()
	if b.bound != nil {
		b.bound(ln.Addr())
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, maxBridgeConns)
	for {
		conn, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				_ = ln.Close()
				return
			}
			time.Sleep(dialFirst) // no descriptors left, say
			continue
		}
		select {
		case slots <- struct{}{}:
			wg.Go(func() {
				defer func() { <-slots }()
				b.pass(ctx, conn)
			})
		default:
			refuse(conn)
		}
	}
}

// listen tries until it succeeds: the network may not be up at first. nil: ctx ended, or the address
// is optional and cannot be had.
func (b *bridge) listen(ctx context.Context) net.Listener {
	for pause := dialFirst; ; pause = min(2*pause, dialMost) {
		ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", b.addr)
		if err == nil {
			return ln
		}
		if b.optional && pause == dialMost {
			return nil
		}
		if !b.optional && pause == dialFirst {
			b.log.Warn("cannot listen for tool calls", "error", err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

func refuse(conn net.Conn) {
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = io.WriteString(conn, bridgeRefusal)
	_ = conn.Close()
}

// pass copies both ways until one side ends; then it closes both.
func (b *bridge) pass(ctx context.Context, conn net.Conn) {
	up, err := b.dial(ctx)
	if err != nil {
		refuse(conn)
		return
	}
	closeBoth := func() { _, _ = conn.Close(), up.Close() }
	defer context.AfterFunc(ctx, closeBoth)()
	var wg sync.WaitGroup
	for _, c := range [2]struct{ to, from net.Conn }{{up, conn}, {conn, up}} {
		wg.Go(func() {
			_, _ = io.Copy(c.to, c.from)
			closeBoth()
		})
	}
	wg.Wait()
}

func (b *bridge) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, bridgeWait)
	defer cancel()
	for pause := dialFirst; ; pause *= 2 {
		conn, err := b.dialer.dial(ctx, b.socket)
		if err == nil {
			return conn, nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, err
		}
	}
}
