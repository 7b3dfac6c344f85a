package link

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/platform/ownedsocket"
)

const (
	socketName  = "control.sock"
	maxHalfOpen = 8
	// attemptsFree handshakes may end in a second, well or not, before accepting slows down to one in
	// attemptPause: code in the sandbox can dial as often as it likes, and a sandboxd of its own knows the secret.
	attemptsFree = 16
	attemptPause = 20 * time.Millisecond
)

// ErrClosed is the error of a Listener that was closed.
var ErrClosed = errors.New("link: listener closed")

// ListenOptions configure a Listener.
type ListenOptions struct {
	// Dir is the host folder that is mounted read-only at /run/skerry; control.sock is made in it,
	// in the place of one of a former server.
	Dir string
	// UID owns the socket (mode 0600). 0 leaves it to the server's own uid.
	UID int
	// SecretFile holds the sandbox's secret: JSON, mode 0600, made when it is not there. It must not
	// lie in Dir, nor in any other folder that the sandbox sees.
	SecretFile string
	Log        *slog.Logger
}

// Listener waits for the connections of one sandbox. At any time at most one is live: the newest
// that knew the secret; an older one is closed. All methods may be called concurrently.
type Listener struct {
	log    *slog.Logger
	ln     *net.UnixListener
	secret *secretFile

	mu       sync.Mutex
	closed   bool
	live     *Conn
	changed  chan struct{} // closed and replaced when live is set, and when the listener closes
	halfOpen []net.Conn    // oldest first
	attempts attemptRate

	wg sync.WaitGroup
}

// Listen makes the socket and begins to accept. The caller closes the Listener.
func Listen(opts ListenOptions) (*Listener, error) {
	if opts.Dir == "" || opts.SecretFile == "" || opts.Log == nil {
		return nil, errors.New("link: Dir, SecretFile and Log are required")
	}
	if rel, err := filepath.Rel(opts.Dir, opts.SecretFile); err == nil && filepath.IsLocal(rel) {
		return nil, errors.New("link: SecretFile lies in the folder that the sandbox sees")
	}
	secret, err := openSecret(opts.SecretFile)
	if err != nil {
		return nil, fmt.Errorf("link: %w", err)
	}
	ln, err := ownedsocket.Listen(opts.Dir, socketName, opts.UID)
	if err != nil {
		return nil, fmt.Errorf("link: %w", err)
	}
	l := &Listener{log: opts.Log, ln: ln, secret: secret, changed: make(chan struct{})}
	l.wg.Add(1)
	go l.accept()
	return l, nil
}

// Conn waits for the live connection. It returns ctx's error, or ErrClosed.
func (l *Listener) Conn(ctx context.Context) (*Conn, error) {
	for {
		l.mu.Lock()
		live, changed, closed := l.live, l.changed, l.closed
		l.mu.Unlock()
		if closed {
			return nil, ErrClosed
		}
		if live != nil && !isClosed(live.Done()) {
			return live, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Lost is closed when the connection that is live now is lost; it is closed already when none is
// live. A new connection is then found with Conn.
func (l *Listener) Lost() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.live == nil {
		none := make(chan struct{})
		close(none)
		return none
	}
	return l.live.Done()
}

// HandedOut tells whether the sandbox has got its secret, now or from a former server: a sandbox
// that has not may still make its first connection.
func (l *Listener) HandedOut() bool {
	l.secret.mu.Lock()
	defer l.secret.mu.Unlock()
	return l.secret.handedOut
}

// Close ends the live connection and stops listening. The socket file and the secret stay: sandboxd
// goes on dialling, and the next server's Listener takes it up again. Closing twice does nothing.
func (l *Listener) Close() {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		l.wg.Wait()
		return
	}
	l.closed = true
	live := l.live
	close(l.changed)
	for _, c := range l.halfOpen {
		_ = c.Close()
	}
	l.mu.Unlock()
	_ = l.ln.Close()
	if live != nil {
		live.Close()
	}
	l.wg.Wait()
}

func (l *Listener) accept() {
	defer l.wg.Done()
	for {
		conn, err := l.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no descriptors left, say
			l.log.Warn("accept from sandbox", "error", err)
			time.Sleep(attemptPause)
			continue
		}
		if !l.begin(conn) {
			continue
		}
		go func() {
			defer l.wg.Done()
			l.handshake(conn)
		}()
		if l.tooManyAttempts() {
			time.Sleep(attemptPause)
		}
	}
}

// begin notes a connection as half open. When there are too many the oldest goes: an honest
// handshake takes a millisecond, so it does not wait.
func (l *Listener) begin(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = conn.Close()
		return false
	}
	if len(l.halfOpen) >= maxHalfOpen {
		_ = l.halfOpen[0].Close()
		l.halfOpen = l.halfOpen[1:]
	}
	l.halfOpen = append(l.halfOpen, conn)
	l.wg.Add(1)
	return true
}

func (l *Listener) handshake(conn net.Conn) {
	_ = conn.SetDeadline(time.Now().Add(handshakeTimeout))
	r := bufio.NewReaderSize(conn, maxLine)
	h, err := l.greet(conn, r)
	l.mu.Lock()
	for i, c := range l.halfOpen {
		if c == conn {
			l.halfOpen = append(l.halfOpen[:i:i], l.halfOpen[i+1:]...)
			break
		}
	}
	l.mu.Unlock()
	if err != nil {
		_ = conn.Close()
		l.refused(err)
		return
	}
	l.mu.Lock()
	l.attempts.add(time.Now())
	l.mu.Unlock()
	_ = conn.SetDeadline(time.Time{})
	live, err := newConn(&bufferedConn{Conn: conn, r: r}, h.Version)
	if err != nil {
		l.log.Warn("connection of sandbox", "error", err)
		return
	}
	l.replace(live)
}

// greet reads the hello and answers it.
func (l *Listener) greet(conn net.Conn, r *bufio.Reader) (hello, error) {
	line, err := readLine(r)
	if err != nil {
		return hello{}, err
	}
	h, err := parseHello(line)
	if err != nil {
		_ = writeLine(conn, answer{Error: "bad hello: " + err.Error()})
		return hello{}, err
	}
	if h.Protocol != Protocol {
		text := fmt.Sprintf("sandboxd %.40q speaks protocol %d, this server speaks protocol %d: both must come from one release", h.Version, h.Protocol, Protocol)
		_ = writeLine(conn, answer{Error: text})
		return hello{}, errors.New(text)
	}
	refused, err := l.secret.check(h.Secret)
	if refused != "" {
		_ = writeLine(conn, answer{Error: refused})
		return hello{}, errors.Join(errors.New(refused), err)
	}
	return h, writeLine(conn, answer{OK: true, Secret: l.secret.secret})
}

func (l *Listener) replace(live *Conn) {
	l.mu.Lock()
	old, closed := l.live, l.closed
	if !closed {
		l.live = live
		close(l.changed)
		l.changed = make(chan struct{})
	}
	l.mu.Unlock()
	if closed {
		live.Close()
		return
	}
	if old != nil {
		old.Close()
	}
	l.log.Debug("sandbox connected", "version", live.version)
}

func (l *Listener) refused(err error) {
	l.mu.Lock()
	n, closed := l.attempts.add(time.Now()), l.closed
	l.mu.Unlock()
	if !closed && n <= attemptsFree {
		l.log.Warn("connection from sandbox refused", "error", err)
	}
}

func (l *Listener) tooManyAttempts() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.attempts.in(time.Now()) > attemptsFree
}

// attemptRate counts handshakes that ended in the present second.
type attemptRate struct {
	second int64
	count  int
}

func (f *attemptRate) in(now time.Time) int {
	if f.second != now.Unix() {
		f.second, f.count = now.Unix(), 0
	}
	return f.count
}

func (f *attemptRate) add(now time.Time) int {
	f.in(now)
	f.count++
	return f.count
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
