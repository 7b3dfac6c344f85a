package sink

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Syslog sends a message (RFC 5424) for each record: facility 13 (log audit), the action as MSGID, what can be searched for as
// structured data, and the record's JSON. By tcp:// and tls:// with octet counting (RFC 6587, 5425); by udp:// and unix:// (a
// datagram socket) a message a datagram. A stream has no answer: after a connection was lost, the batch before is sent again too.
type Syslog struct {
	network, address, host string
	tls                    *tls.Config
	conn                   net.Conn
	before                 []byte // the last batch that was written to a stream
	doubt                  bool   // whether it came
}

// maxDatagram bounds a message of UDP; a longer one leaves out the JSON.
const maxDatagram = 60 << 10

// NewSyslog makes a sink of tcp://host:port, tls://host:port, udp://host:port or unix:///path. It connects to nothing yet.
func NewSyslog(address string) (*Syslog, error) {
	u, err := url.Parse(address)
	bad := sandbox.Errorf(sandbox.Invalid, "the address of syslog is to be tcp://host:port, tls://host:port, udp://host:port or unix:///path")
	if err != nil || u.User != nil || u.RawQuery != "" {
		return nil, bad
	}
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "-"
	}
	s := &Syslog{network: u.Scheme, address: u.Host, host: printable(host, 255)}
	switch u.Scheme {
	case "tls":
		s.network, s.tls = "tcp", &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12}
	case "tcp", "udp":
	case "unix":
		if s.network, s.address = "unixgram", u.Path; u.Path == "" || u.Host != "" {
			return nil, bad
		}
		return s, nil
	default:
		return nil, bad
	}
	if u.Port() == "" || u.Hostname() == "" {
		return nil, bad
	}
	return s, nil
}

// Name is the sink's.
func (*Syslog) Name() string { return "syslog" }

// Close ends the connection.
func (s *Syslog) Close() error {
	if s.conn == nil {
		return nil
	}
	err := s.conn.Close()
	s.conn = nil
	return err
}

// Reach connects, and reports whether that can be done. It tells nothing of udp://, which has no answers: see Answers.
func (s *Syslog) Reach(ctx context.Context) error {
	probe := &Syslog{network: s.network, address: s.address, tls: s.tls}
	if err := probe.connect(ctx); err != nil {
		return sandbox.Wrap(sandbox.Unavailable, err, "syslog cannot be connected to")
	}
	return probe.Close()
}

// Answers reports whether Reach can find out anything.
func (s *Syslog) Answers() bool { return s.network != "udp" }

// Send writes a batch.
func (s *Syslog) Send(ctx context.Context, entries []audit.Entry) error {
	err := s.send(ctx, entries)
	if err != nil {
		s.doubt = true
		_ = s.Close()
		return sandbox.Wrap(sandbox.Unavailable, err, "syslog cannot be written to")
	}
	return nil
}

func (s *Syslog) send(ctx context.Context, entries []audit.Entry) error {
	stream := s.network == "tcp"
	if s.conn != nil && stream && s.gone() {
		s.doubt = true
		_ = s.Close()
	}
	if err := s.connect(ctx); err != nil {
		return err
	}
	if end, ok := ctx.Deadline(); ok {
		if err := s.conn.SetWriteDeadline(end); err != nil {
			return err
		}
	}
	if !stream {
		for _, e := range entries {
			m := s.message(e, e.Line)
			if len(m) > maxDatagram {
				m = s.message(e, nil)
			}
			if _, err := s.conn.Write(m); err != nil {
				return err
			}
		}
		return nil
	}
	if s.doubt {
		if _, err := s.conn.Write(s.before); err != nil {
			return err
		}
	}
	var batch []byte
	for _, e := range entries {
		m := s.message(e, e.Line)
		batch = append(strconv.AppendInt(batch, int64(len(m)), 10), ' ')
		batch = append(batch, m...)
	}
	if _, err := s.conn.Write(batch); err != nil {
		return err
	}
	s.before, s.doubt = batch, false
	return nil
}

func (s *Syslog) connect(ctx context.Context) error {
	if s.conn != nil {
		return nil
	}
	d := net.Dialer{Timeout: 10 * time.Second}
	conn, err := d.DialContext(ctx, s.network, s.address)
	if err != nil {
		return err
	}
	if s.tls != nil {
		c := tls.Client(conn, s.tls)
		if err := c.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return err
		}
		conn = c
	}
	s.conn = conn
	return nil
}

// gone reports whether the other side has closed: a write would not tell.
func (s *Syslog) gone() bool {
	if s.conn.SetReadDeadline(time.Now().Add(time.Millisecond)) != nil {
		return true
	}
	_, err := s.conn.Read(make([]byte, 1))
	timeout, ok := err.(net.Error) //nolint:errorlint // it comes from the connection itself
	return err != nil && (!ok || !timeout.Timeout())
}

// message is a record as RFC 5424 has it.
func (s *Syslog) message(e audit.Entry, text []byte) []byte {
	severity := 6 // informational
	switch {
	case e.Phase == audit.PhaseAttempt:
	case e.Outcome == "denied":
		severity = 4 // warning
	case e.Outcome != "" && e.Outcome != "ok" && e.Outcome != "exited":
		severity = 5 // notice
	}
	m := fmt.Appendf(nil, "<%d>1 %s %s skerry %d %s [skerry@32473", 13*8+severity, e.Time.UTC().Format("2006-01-02T15:04:05.000000Z"), s.host, os.Getpid(), printable(e.Action, 32))
	for _, p := range [][2]string{
		{"id", e.ID}, {"tenant", e.Tenant}, {"user", e.User}, {"thread", e.Thread}, {"exec", e.Exec}, {"phase", e.Phase}, {"outcome", e.Outcome},
		{"writer", e.Writer}, {"seq", strconv.FormatUint(e.Seq, 10)}, {"request", e.RequestID}, {"hash", e.Hash},
	} {
		if p[1] != "" {
			m = fmt.Appendf(m, " %s=\"%s\"", p[0], escape.Replace(p[1]))
		}
	}
	m = append(m, ']')
	if text != nil {
		m = append(m, " \xEF\xBB\xBF"...) // what follows is UTF-8
		m = append(m, text...)
	}
	return m
}

// escape is what a value of structured data needs. Line ends would part a message for receivers that do not count.
var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, `]`, `\]`, "\n", " ", "\r", " ", "\x00", " ")

// printable is a text for the head of a message.
func printable(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if r > ' ' && r < 0x7f {
			return r
		}
		return -1
	}, s)
	if s == "" {
		return "-"
	}
	return s[:min(len(s), most)]
}
