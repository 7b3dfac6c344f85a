package runtimeprobe

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/procid"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// fleet is a driver's list of sandboxes.
type fleet struct {
	list    []sandbox.Instance
	removed []sandbox.ID
}

func (f *fleet) List(context.Context, map[string]string) ([]sandbox.Instance, error) {
	return f.list, nil
}

func (f *fleet) Remove(_ context.Context, id sandbox.ID) error {
	f.removed = append(f.removed, id)
	return nil
}

// TestSweepSandboxes: the probe of a process that has ended goes at once, and one of an unknown process when
// it is old. A probe whose process lives stays, and so does a container that is no probe.
func TestSweepSandboxes(t *testing.T) {
	cmd := exec.Command("sleep", "100")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dead := name(procid.Of(cmd.Process.Pid))
	if ended(dead) || ended(maker()) {
		t.Error("a process that lives has ended")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	again := fmt.Sprintf("%s/1/%d", world(), procid.Of(1).Start+1) // its number is another one's by now
	f := &fleet{}
	add := func(id sandbox.ID, age time.Duration, labels map[string]string) {
		f.list = append(f.list, sandbox.Instance{ID: id, CreatedAt: time.Now().Add(-age), Labels: labels})
	}
	add("dead", 0, map[string]string{LabelProbe: "runc", LabelMaker: dead})
	add("again", 0, map[string]string{LabelProbe: "runc", LabelMaker: again})
	add("mine", 0, map[string]string{LabelProbe: "runc", LabelMaker: maker()})
	add("elsewhere", 0, map[string]string{LabelProbe: "runc", LabelMaker: "boot/pid:[1]/2/3"})
	add("nobody's", 0, map[string]string{LabelProbe: "runc"})
	add("old", time.Hour, map[string]string{LabelProbe: "runc"})
	add("no probe", time.Hour, map[string]string{LabelMaker: dead})
	SweepSandboxes(t.Context(), f, slog.New(slog.DiscardHandler))
	if got := fmt.Sprint(f.removed); got != "[dead again old]" {
		t.Errorf("removed %s", got)
	}
}
