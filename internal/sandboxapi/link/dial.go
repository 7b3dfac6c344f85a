package link

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/sys/unix"
)

// maxConnStreams bounds the calls at once on a link: every exec may have a Run, an Attach or two,
// and short calls besides.
const maxConnStreams = 1024

// Dial connects to the server's socket and does the handshake, within 5 seconds altogether. secret
// is "" for the first connection ever; newSecret is to be presented from then on. The connection is
// ready for Serve.
func Dial(ctx context.Context, socketPath, secret string) (conn net.Conn, newSecret string, err error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	raw, err := dialUnix(ctx, socketPath)
	if err != nil {
		return nil, "", fmt.Errorf("link: dial: %w", err)
	}
	return Greet(ctx, raw, secret)
}

// Greet is Dial on a connection that was made already. When it fails the connection is closed.
func Greet(ctx context.Context, raw net.Conn, secret string) (conn net.Conn, newSecret string, err error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	r := bufio.NewReaderSize(raw, maxLine)
	a, err := greet(raw, r, secret)
	if err != nil {
		_ = raw.Close()
		return nil, "", err
	}
	if !stop() { // the deadline passed between the answer and here
		_ = raw.Close()
		return nil, "", fmt.Errorf("link: handshake: %w", ctx.Err())
	}
	return &bufferedConn{Conn: raw, r: r}, a.Secret, nil
}

func greet(conn net.Conn, r *bufio.Reader, secret string) (answer, error) {
	if err := writeLine(conn, hello{Protocol: Protocol, Version: Version(), Secret: secret}); err != nil {
		return answer{}, fmt.Errorf("link: handshake: %w", err)
	}
	line, err := readLine(r)
	if err != nil {
		return answer{}, fmt.Errorf("link: handshake: %w", err)
	}
	a, err := parseAnswer(line)
	if err != nil {
		return answer{}, fmt.Errorf("link: handshake: answer: %w", err)
	}
	if !a.OK {
		return answer{}, fmt.Errorf("%w: %.200q", ErrRefused, a.Error)
	}
	return a, nil
}

// dialUnix dials a socket whose path may be longer than the 107 bytes that a socket address holds.
func dialUnix(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	if len(path) < len(unix.RawSockaddrUnix{}.Path) {
		return d.DialContext(ctx, "unix", path)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return d.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
}

// Serve serves HTTP/2 without TLS on a connection from Dial, until it closes or ctx ends; then it
// closes it. It returns nil when the peer went away, and ctx's error when ctx ended first. Handlers
// that still run have their context cancelled.
func Serve(ctx context.Context, conn net.Conn, handler http.Handler) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	srv := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: handshakeTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxConnStreams,
			MaxReadFrameSize:     maxFrameBytes,
			// A server that hangs is noticed too, if more slowly: sandboxd has nothing better to do
			// than to dial again.
			SendPingTimeout: 5 * time.Second,
			PingTimeout:     5 * time.Second,
		},
	}
	(&http2.Server{}).ServeConn(conn, &http2.ServeConnOpts{Context: ctx, BaseConfig: srv, Handler: handler})
	_ = conn.Close()
	return context.Cause(ctx)
}
