package memory_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/drivertest"
	"github.com/skerry-sandbox/skerry/internal/driver/drivertest/probewire"
	"github.com/skerry-sandbox/skerry/internal/driver/memory"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestRemoteConformance(t *testing.T) {
	host := memory.NewHost(nil, nil)
	defer host.Stop()
	drivertest.Run(t, drivertest.Harness{
		New: func(testing.TB) driver.Driver {
			return memory.NewRemote(memory.Options{Host: host, Images: []string{"image"}})
		},
		Runtime:      "runc",
		Image:        "image",
		UnknownImage: "no-such-image",
		Kill: func(t testing.TB, id sandbox.ID) {
			if !host.Kill(id) {
				t.Errorf("%s was not alive", id)
			}
		},
		Inside: func(t testing.TB, id sandbox.ID, req probewire.Request) probewire.Response {
			return inside(host, id, req)
		},
		Cut: func(_ testing.TB, id sandbox.ID, broken bool) { host.Cut(id, broken) },
	})
}

// inside plays the program of the suite.
func inside(host *memory.Host, id sandbox.ID, req probewire.Request) (resp probewire.Response) {
	path := host.Inside(id, req.Path)
	var err error
	switch req.Op {
	case probewire.OpRead:
		var text []byte
		text, err = os.ReadFile(path)
		resp.Text = string(text)
	case probewire.OpWrite:
		err = os.WriteFile(path, []byte(req.Data), 0o600)
	case probewire.OpMkdir:
		err = os.Mkdir(path, 0o700)
	case probewire.OpRemove:
		err = os.RemoveAll(path)
	case probewire.OpSymlink:
		err = os.Symlink(req.Data, path)
	case probewire.OpFill:
		err = os.WriteFile(path, make([]byte, req.N), 0o600)
	case probewire.OpOwner:
		var info os.FileInfo
		if info, err = os.Lstat(path); err == nil {
			st := info.Sys().(*syscall.Stat_t)
			resp.Lines = []string{fmt.Sprint(st.Uid), fmt.Sprint(st.Gid)}
		}
	case probewire.OpDial:
		resp.Text, err = ping(req.Path, host.Inside(id, req.Data))
	default:
		resp.Err = "unknown operation " + string(req.Op)
	}
	if err != nil {
		resp.Err = err.Error()
	}
	return resp
}

func ping(network, address string) (string, error) {
	conn, err := net.DialTimeout(network, address, 5*time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // the answer was read
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := conn.Write([]byte("ping\n")); err != nil {
		return "", err
	}
	return bufio.NewReader(conn).ReadString('\n')
}
