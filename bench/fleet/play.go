package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"time"

	"connectrpc.com/connect"

	"github.com/skerry-sandbox/skerry/internal/sandboxapi/link"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/sandboxapi/v1/sandboxv1connect"
)

// play is sandboxd for every socket that a line names, until there are no more lines.
func play(lines io.Reader) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	mux := http.NewServeMux()
	mux.Handle(sandboxv1connect.NewSandboxServiceHandler(daemon{}))
	in := bufio.NewScanner(lines)
	for in.Scan() {
		go playOne(ctx, in.Text(), mux)
	}
}

// playOne dials until the socket is gone.
func playOne(ctx context.Context, socket string, handler http.Handler) {
	const pause = 20 * time.Millisecond
	secret := ""
	for ctx.Err() == nil {
		if _, err := os.Lstat(socket); errors.Is(err, fs.ErrNotExist) {
			return
		}
		conn, next, err := link.Dial(ctx, socket, secret)
		if err == nil {
			secret = next
			_ = link.Serve(ctx, conn, handler) //nolint:errcheck // it dials again
		}
		time.Sleep(pause)
	}
}

// daemon answers each exec at once.
type daemon struct {
	sandboxv1connect.UnimplementedSandboxServiceHandler
}

func (daemon) Status(context.Context, *connect.Request[sandboxv1.StatusRequest]) (*connect.Response[sandboxv1.StatusResponse], error) {
	return connect.NewResponse(&sandboxv1.StatusResponse{Protocol: link.Protocol, Languages: []string{"python"}}), nil
}

func (daemon) Run(_ context.Context, _ *connect.Request[sandboxv1.RunRequest], out *connect.ServerStream[sandboxv1.Event]) error {
	return errors.Join(
		out.Send(&sandboxv1.Event{N: 1, Kind: &sandboxv1.Event_Started{Started: &sandboxv1.Started{Pid: 2}}}),
		out.Send(&sandboxv1.Event{N: 2, Kind: &sandboxv1.Event_Exit{Exit: &sandboxv1.Exit{Status: sandboxv1.Exit_STATUS_EXITED, Stdout: &sandboxv1.Stream{}, Stderr: &sandboxv1.Stream{}}}}),
	)
}
