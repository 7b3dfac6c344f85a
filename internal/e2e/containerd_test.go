package e2e

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver/containerd"
	"github.com/skerry-sandbox/skerry/internal/driver/containerd/containerdtest"
)

// engine is the containerd of all tests, which TestMain ends. The image is in it before any server starts.
var engine struct {
	once    sync.Once
	missing error // what it is started from is not there
	err     error
	daemon  *containerdtest.Daemon
}

// importTimeout bounds making the image: 13 s as a rule.
const importTimeout = 5 * time.Minute

func needContainerd(t *testing.T) {
	t.Helper()
	needDriver(t, "oci", "runc") // the unpacked image is what is imported
	engine.once.Do(func() {
		programs, err := containerdtest.Built(cache())
		if err != nil {
			engine.missing = err
			return
		}
		if engine.daemon, engine.err = containerdtest.Start(programs); engine.err == nil {
			engine.err = importBase(t, engine.daemon.Address)
		}
	})
	need(t, engine.missing == nil, "containerd")
	must(t, engine.err)
}

// importBase does what a server does at its start, which the tests do not want to wait for there.
func importBase(t *testing.T, address string) error {
	d, err := containerd.New(containerd.Options{Address: address, Root: t.TempDir()})
	if err != nil {
		return err
	}
	defer d.Close()
	ctx, cancel := context.WithTimeout(context.Background(), importTimeout)
	defer cancel()
	_, err = d.ImportImage(ctx, "skerry/base:latest", filepath.Join(cache(), "images/base/rootfs"))
	return err
}

// stopContainerd ends it. Sandboxes that are left over are an error.
func stopContainerd() error {
	if engine.daemon == nil {
		return nil
	}
	return engine.daemon.Stop(containerd.DefaultNamespace)
}
