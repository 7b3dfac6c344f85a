package link

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"sync"
	"time"
)

// Protocol is the version of the contract of internal/sandboxapi. Both sides must have the same.
const Protocol = 1

const (
	maxLine          = 4 << 10         // a handshake line with its newline
	handshakeTimeout = 5 * time.Second // for dial, both lines and the disk write between them
	secretBytes      = 32
)

// ErrRefused is wrapped by the error of Dial when the server answered and said no: dialling again
// with the same secret is of little use, but harmless.
var ErrRefused = errors.New("link: the server refused the connection")

// hello is the line of sandboxd.
type hello struct {
	Protocol int    `json:"protocol"`
	Version  string `json:"version"`
	Secret   string `json:"secret"`
}

// answer is the line of the server.
type answer struct {
	OK     bool   `json:"ok"`
	Secret string `json:"secret,omitempty"`
	Error  string `json:"error,omitempty"`
}

// parseHello checks everything but the secret's value and the protocol's number: a hello of another
// protocol is still read, so that it can be answered.
func parseHello(line []byte) (hello, error) {
	var h hello
	if err := parseLine(line, &h); err != nil {
		return hello{}, err
	}
	if len(h.Version) > 128 {
		return hello{}, errors.New("version longer than 128 bytes")
	}
	if h.Secret != "" && !isSecret(h.Secret) {
		return hello{}, errors.New("secret is not 64 hex digits")
	}
	return h, nil
}

func parseAnswer(line []byte) (answer, error) {
	var a answer
	if err := parseLine(line, &a); err != nil {
		return answer{}, err
	}
	if a.OK && !isSecret(a.Secret) {
		return answer{}, errors.New("secret is not 64 hex digits")
	}
	return a, nil
}

func parseLine(line []byte, into any) error {
	if len(line) > maxLine {
		return fmt.Errorf("line longer than %d bytes", maxLine)
	}
	d := json.NewDecoder(bytes.NewReader(line))
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("not a JSON object: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	return nil
}

func isSecret(s string) bool {
	if len(s) != 2*secretBytes {
		return false
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func writeLine(conn net.Conn, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = conn.Write(append(line, '\n'))
	return err
}

// readLine reads up to a newline. The reader's buffer bounds the line.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return nil, fmt.Errorf("line longer than %d bytes", maxLine)
	}
	return line, err
}

// bufferedConn is a connection of which some bytes were read already: the peer may send its first
// HTTP/2 frames right behind its line.
type bufferedConn struct {
	net.Conn
	r *bufio.Reader
}

func (c *bufferedConn) Read(p []byte) (int, error) {
	if c.r.Buffered() > 0 {
		return c.r.Read(p)
	}
	return c.Conn.Read(p)
}

// Version is that of this binary, for the logs of the other side.
var Version = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
})
