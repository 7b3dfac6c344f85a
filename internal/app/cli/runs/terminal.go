package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	sdk "github.com/skerry-sandbox/skerry/sdk/go"
)

const (
	joinAgainFor  = 30 * time.Second // that a lost connection is tried again
	maxShownFrame = 1 << 20
	typedAtOnce   = 4 << 10
	pollMillis    = 100  // between two looks at whether the session goes on
	maxSide       = 1000 // of a terminal, as the API has it
)

// leaveTerminal undoes what hostile output may have left switched on, and a shell would not: reports of
// the mouse, of focus and of pastes, another screen, a hidden cursor, colours.
const leaveTerminal = "\x1b[?1000;1002;1003;1004;1005;1006;1015;2004l\x1b[?1047l\x1b[?25h\x1b[?7h\x1b[?1l\x1b>\x1b(B\x1b[0m"

// terminalSession shows the terminal of an exec on the user's own.
type terminalSession struct {
	api          *client.Client
	thread, exec string
	in, out      *os.File
	typed        chan []byte
	resized      chan os.Signal
	last         uint64 // number of the newest event that was shown
}

// runTerminal starts a command in a terminal, or joins one, and ends with its exit code.
func runTerminal(cmd *cobra.Command, api *client.Client, thread, join string, command sdk.Command) error {
	in, _ := cmd.InOrStdin().(*os.File)
	out, _ := cmd.OutOrStdout().(*os.File)
	if in == nil || out == nil || !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) {
		return errors.New("-t needs a terminal as input and output; leave it out otherwise")
	}
	s := &terminalSession{api: api, thread: thread, exec: join, in: in, out: out, typed: make(chan []byte), resized: make(chan os.Signal, 1)}
	if join == "" {
		cols, rows := s.size()
		command.PTY = &sdk.PTYSize{Cols: uint16(cols), Rows: uint16(rows)} //nolint:gosec // at most maxSide
		res, err := api.SDK().Thread(thread).Start(cmd.Context(), command)
		if err != nil {
			return client.Explain(err)
		}
		s.exec = res.ExecID
	}
	res, err := s.show(cmd.Context())
	if err != nil {
		return fmt.Errorf("%w\nThe exec goes on until its deadline: skerry exec -t %s --join %s", err, thread, s.exec)
	}
	return client.Ending(&res)
}

// size is that of the user's terminal, or a usual one.
func (s *terminalSession) size() (cols, rows int) {
	cols, rows, err := term.GetSize(int(s.out.Fd()))
	if err != nil || cols < 1 || rows < 1 {
		return 80, 24
	}
	return min(cols, maxSide), min(rows, maxSide)
}

// show connects the user's terminal to the exec until it ends.
func (s *terminalSession) show(ctx context.Context) (client.Result, error) {
	before, err := term.MakeRaw(int(s.in.Fd()))
	if err != nil {
		return client.Result{}, fmt.Errorf("terminal: %w", err)
	}
	defer func() {
		_, _ = s.out.WriteString(leaveTerminal)
		_ = term.Restore(int(s.in.Fd()), before)
	}()
	notifyResized(s.resized)
	defer signal.Stop(s.resized)
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { s.read(ctx) })
	defer wg.Wait()
	defer cancel()
	for since := time.Now(); ; {
		joined, res, err := s.join(ctx)
		if res != nil {
			return *res, nil
		}
		if joined {
			since = time.Now()
		}
		if status := websocket.CloseStatus(err); ctx.Err() != nil || time.Since(since) > joinAgainFor ||
			status == websocket.StatusPolicyViolation || errors.As(err, new(*refusal)) {
			return client.Result{}, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second / 2):
		}
	}
}

// read takes what the user types until ctx ends. It polls, because nothing ends a read of a terminal.
func (s *terminalSession) read(ctx context.Context) {
	buf := make([]byte, typedAtOnce)
	for ctx.Err() == nil {
		ready, err := readable(s.in)
		if !ready && err == nil {
			continue
		}
		n := 0
		if err == nil {
			n, err = s.in.Read(buf)
		}
		if err != nil || n == 0 {
			return // the terminal is gone; the exec is not
		}
		select {
		case s.typed <- append([]byte(nil), buf[:n]...):
		case <-ctx.Done():
		}
	}
}

// refusal is an answer of the server that trying again does not change.
type refusal struct{ error }

// join follows the exec over one connection. joined says that there was one; the result is nil when it
// was lost.
func (s *terminalSession) join(ctx context.Context) (joined bool, res *client.Result, err error) {
	address := strings.TrimSuffix(s.api.Server, "/") + client.ThreadPath(s.thread, "pty") + "?exec=" + url.QueryEscape(s.exec) +
		"&after=" + strconv.FormatUint(s.last, 10)
	dial, cancel := context.WithTimeout(ctx, client.DialTimeout)
	defer cancel()
	conn, answer, err := websocket.Dial(dial, address, &websocket.DialOptions{HTTPHeader: s.api.Header()}) //nolint:bodyclose // the package closes it
	if err != nil {
		if answer != nil && answer.StatusCode >= 400 && answer.StatusCode < 500 {
			err = &refusal{client.Explain(sdk.ErrorFrom(answer))}
		}
		return false, nil, err
	}
	defer conn.CloseNow() //nolint:errcheck // it may be closed already
	conn.SetReadLimit(maxShownFrame)
	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { s.send(ctx, conn) })
	defer wg.Wait()
	defer stop()
	res, err = s.receive(ctx, conn)
	return true, res, err
}

// send passes on what the user types, and the size of the window, first and whenever it changes.
func (s *terminalSession) send(ctx context.Context, conn *websocket.Conn) {
	resize := func() error {
		cols, rows := s.size()
		return conn.Write(ctx, websocket.MessageText, fmt.Appendf(nil, `{"resize":{"cols":%d,"rows":%d}}`, cols, rows))
	}
	for err := resize(); err == nil; {
		select {
		case <-ctx.Done():
			return
		case <-s.resized:
			err = resize()
		case data := <-s.typed:
			err = conn.Write(ctx, websocket.MessageBinary, data)
		}
	}
}

// receive shows what comes until the exec ends.
func (s *terminalSession) receive(ctx context.Context, conn *websocket.Conn) (*client.Result, error) {
	for {
		typ, data, err := conn.Read(ctx)
		if err != nil {
			return nil, err
		}
		if typ == websocket.MessageBinary {
			if _, err := s.out.Write(data); err != nil {
				return nil, &refusal{err}
			}
			s.last++
			continue
		}
		var frame struct {
			Next uint64         `json:"next"`
			Exit *client.Result `json:"exit"`
		}
		switch err := json.Unmarshal(data, &frame); {
		case err != nil:
			return nil, &refusal{errors.New("the server sent what this program does not understand")}
		case frame.Exit != nil:
			return frame.Exit, nil
		case frame.Next > 0:
			s.last = frame.Next - 1
		}
	}
}
