package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// terminal is a client at the terminal of an exec.
type terminal struct {
	t      *testing.T
	conn   *websocket.Conn
	shown  string
	last   uint64 // number of the newest event
	status string // of the exit, once it is there
	code   int
}

// terminalExec starts a command in a terminal of 80 by 24.
func (s *server) terminalExec(thread string, argv ...string) string {
	s.t.Helper()
	r := s.run(thread, "exec", map[string]any{"argv": argv, "background": true, "timeout_s": 120, "pty": map[string]int{"cols": 80, "rows": 24}})
	if r.Status != "running" {
		s.t.Fatalf("%+v", r)
	}
	return r.ExecID
}

// join joins the terminal of an exec behind event after.
func (s *server) join(thread, exec string, after uint64) *terminal {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	header := http.Header{}
	if s.key != "" {
		header.Set("Authorization", "Bearer "+s.key)
	}
	url := fmt.Sprintf("%s/api/threads/%s/pty?exec=%s&after=%d", s.url, thread, exec, after)
	conn, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{HTTPHeader: header})
	must(s.t, err)
	conn.SetReadLimit(1 << 20)
	s.t.Cleanup(func() { _ = conn.CloseNow() })
	return &terminal{t: s.t, conn: conn}
}

// next takes one frame; false when the exec has ended.
func (c *terminal) next() bool {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 60*time.Second)
	defer cancel()
	typ, data, err := c.conn.Read(ctx)
	if err != nil {
		c.t.Fatalf("%v; shown so far: %q", err, c.shown)
	}
	if typ == websocket.MessageBinary {
		c.shown += string(data)
		c.last++
		return true
	}
	var frame struct {
		Next uint64 `json:"next"`
		Exit *struct {
			Status   string `json:"status"`
			ExitCode int    `json:"exit_code"`
		} `json:"exit"`
	}
	must(c.t, json.Unmarshal(data, &frame))
	if frame.Exit != nil {
		c.status, c.code = frame.Exit.Status, frame.Exit.ExitCode
		return false
	}
	c.last = frame.Next - 1
	return true
}

func (c *terminal) until(text string) {
	c.t.Helper()
	for !strings.Contains(c.shown, text) {
		if !c.next() {
			c.t.Fatalf("ended without %q: %q", text, c.shown)
		}
	}
}

// prompted waits until bash has shown its prompt.
func (c *terminal) prompted() {
	c.t.Helper()
	for !strings.HasSuffix(c.shown, "$ ") {
		if !c.next() {
			c.t.Fatalf("ended without a prompt: %q", c.shown)
		}
	}
}

func (c *terminal) end() {
	c.t.Helper()
	for c.next() {
	}
}

func (c *terminal) send(typ websocket.MessageType, text string) {
	c.t.Helper()
	must(c.t, c.conn.Write(c.t.Context(), typ, []byte(text)))
}

func (c *terminal) say(text string) { c.t.Helper(); c.send(websocket.MessageBinary, text) }

// TestTerminal: a shell on a real terminal in a sandbox, left and joined again.
func TestTerminal(t *testing.T) {
	t.Parallel()
	onAll(t, func(t *testing.T, o options) {
		s := start(t, o)
		id := s.terminalExec("tty", "bash", "--norc", "--noprofile", "-i")
		c := s.join("tty", id, 0)
		c.say("echo size $(stty size) $TERM; tty\n")
		c.until("size 24 80 xterm-256color\r\n")
		c.until("/dev/pts/")
		c.prompted() // before it, bash reads the size and writes it back, as it was
		c.send(websocket.MessageText, `{"resize":{"cols":132,"rows":50}}`)
		c.say("echo now $(stty size)\n")
		c.until("now 50 132\r\n")
		c.say("trap 'echo told $LINES' WINCH; read -r -t 0.1; python3 -c 'import os; print(os.isatty(0), os.get_terminal_size().columns)'\n")
		c.until("True 132\r\n")
		c.say("sleep 1000 & setsid -f sleep 2000; sleep 3000\n")
		s.eventuallyRuns("tty", "sleep 3000")
		c.say("\x03") // ends the last sleep, and nothing else
		c.say("echo after $?\n")
		c.until("after 130\r\n")

		// What is shown while no client is connected is there for the next one.
		after := c.last
		must(t, c.conn.CloseNow())
		s.do("POST", "/api/threads/tty/execs/"+id+"/stdin", map[string]any{"data": "for i in 1 2 3; do echo away-$i; sleep 0.1; done; exit 7\n"})
		var ended result
		eventually(t, "the shell ends", func() bool {
			s.do("GET", "/api/threads/tty/execs/"+id, nil).into(t, &ended)
			return ended.Status != "running"
		})
		back := s.join("tty", id, after)
		back.end()
		if back.status != "exited" || back.code != 7 || !strings.Contains(back.shown, "away-1\r\naway-2\r\naway-3\r\n") || strings.Contains(back.shown, "after 130") {
			t.Errorf("%s %d %q", back.status, back.code, back.shown)
		}
		if ended.Status != "exited" || ended.ExitCode == nil || *ended.ExitCode != 7 || !strings.Contains(ended.Stdout, "now 50 132") {
			t.Errorf("result %+v", ended)
		}
		if left := s.ok("tty", "ps -e -o args | grep -c '[s]leep [123]000' || true"); strings.TrimSpace(left) != "0" {
			t.Errorf("%s processes of the terminal are left", left)
		}
		if n := len(s.records("exec="+id, "result")); n != 3 { // two joins and the end
			t.Errorf("%d records", n)
		}
	})
}

// eventuallyRuns waits until a command line runs in the sandbox.
func (s *server) eventuallyRuns(thread, args string) {
	s.t.Helper()
	eventually(s.t, args+" runs", func() bool {
		return strings.TrimSpace(s.exec(thread, "ps -e -o args | grep -cx '"+args+"' || true").Stdout) == "1"
	})
}

// TestTerminalEnds: by its deadline and by kill, with all that runs in it.
func TestTerminalEnds(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	id := s.terminalExec("ends", "bash", "-c", "trap '' HUP INT TERM; echo on; sleep 1000")
	c := s.join("ends", id, 0)
	c.until("on\r\n")
	s.do("DELETE", "/api/threads/ends/execs/"+id, nil)
	if c.end(); c.status != "killed" {
		t.Errorf("killed: %q", c.status)
	}
	r := s.run("ends", "exec", map[string]any{"command": "echo on; sleep 1000", "background": true, "timeout_s": 1, "pty": map[string]int{"cols": 80, "rows": 24}})
	late := s.join("ends", r.ExecID, 0)
	if late.end(); late.status != "timeout" || !strings.Contains(late.shown, "on\r\n") {
		t.Errorf("deadline: %q %q", late.status, late.shown)
	}
	if left := s.ok("ends", "ps -e -o args | grep -c '[s]leep 1000' || true"); strings.TrimSpace(left) != "0" {
		t.Errorf("%s processes are left", left)
	}
}

// TestTerminalSlowReader: who takes nothing holds up neither the exec nor another client.
func TestTerminalSlowReader(t *testing.T) {
	whole(t, TestTerminalEnds)
	t.Parallel()
	s := start(t, options{})
	id := s.terminalExec("slow", "bash", "-c", "read; seq 1 1000000; echo the end")
	idle, c := s.join("slow", id, 0), s.join("slow", id, 0)
	c.say("\n")
	c.end()
	if c.status != "exited" || !strings.HasSuffix(c.shown, "1000000\r\nthe end\r\n") {
		t.Errorf("%s, ending %q", c.status, c.shown[max(0, len(c.shown)-40):])
	}
	_ = idle // it has not read a byte
	var r result
	s.do("GET", "/api/threads/slow/execs/"+id, nil).into(t, &r)
	if !r.Truncated || len(r.Stdout) > 1<<20+200 || !strings.Contains(r.Stdout, "left out") {
		t.Errorf("truncated %v, %d bytes", r.Truncated, len(r.Stdout))
	}
}
