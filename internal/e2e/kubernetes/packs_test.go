package kubernetes

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/sdk/go/packs"
)

// packOfReplica: a thread of one replica calls a pack that is connected to the other one. When that one is killed the pack
// connects to the first, and calls work again.
func packOfReplica(t *testing.T, h *house) {
	f := h.front()
	a, b := f.open[0], f.open[1]
	p := packs.New("crm", "1.0.0")
	must(t, packs.Tool(p, "find", "Finds", func(ctx context.Context, in struct {
		Name string `json:"name"`
	}) (string, error) {
		return in.Name + " for " + packs.CallerOf(ctx).Thread, nil
	}))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- p.Serve(ctx, packs.Server{URL: a.url, Others: []string{b.url}, Credential: packs.BearerKey(h.key), Log: slog.New(slog.DiscardHandler)})
	}()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the pack: %v", err)
		}
	}()
	h.ok(b, "pack", "true")
	works := func() bool {
		got, err := h.request(b, "POST", "/api/threads/pack/tools/call", map[string]any{"tool": "crm__find", "input": map[string]any{"name": "Ada"}})
		return err == nil && got.status == 200 && strings.Contains(string(got.body), "Ada for pack")
	}
	eventually(t, "the thread of the other replica calls the pack", works)
	h.kubectl("delete", "pod", a.pod, "--grace-period=0", "--force")
	began := time.Now()
	eventually(t, "the pack is called again", works)
	t.Logf("a call worked %s after the replica with the pack was killed", time.Since(began))
	h.kubectl("rollout", "status", "deployment/skerry", "--timeout", installTime.String())
}
