package nest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Ready is what Relay says before the first byte of the sidecar, on a terminal that is raw by then. What a terminal
// echoes before that is no part of the stream.
const Ready = "\x00skerry-relay-1\n"

const (
	relayWait  = 10 * time.Second // for a sidecar that begins to listen
	relayPause = 20 * time.Millisecond
)

// Relay connects in and out with the sidecar of a private folder, until either side ends.
func Relay(ctx context.Context, socket string, in, out *os.File) error {
	if err := raw(in); err != nil {
		return fmt.Errorf("terminal: %w", err)
	}
	conn, err := dial(ctx, socket)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // one side has ended
	if _, err := io.WriteString(out, Ready); err != nil {
		return err
	}
	var once sync.Once
	ended := make(chan struct{})
	end := func() { once.Do(func() { close(ended) }) }
	go func() {
		defer end()
		_, _ = io.Copy(conn, in)
	}()
	go func() {
		defer end()
		_, _ = io.Copy(out, conn)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	return nil
}

// raw makes a terminal pass every byte as it is. What is none does so already.
func raw(f *os.File) error {
	t, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	if err != nil {
		return err
	}
	t.Iflag, t.Oflag, t.Lflag = 0, 0, 0
	t.Cflag = t.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	return unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, t)
}

func dial(ctx context.Context, socket string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, relayWait)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err == nil {
			return conn, nil
		}
		select {
		case <-time.After(relayPause):
		case <-ctx.Done():
			return nil, fmt.Errorf("the sidecar does not listen: %w", err)
		}
	}
}
