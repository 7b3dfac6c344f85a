package packs

import (
	"context"
	"log/slog"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/packs/manifest"
	packsv1 "github.com/skerry-sandbox/skerry/sdk/packs/v1"
)

// FuzzFrames: whatever a registered pack sends, nothing of it panics, and what is kept of its results stays bounded.
func FuzzFrames(f *testing.F) {
	for _, msg := range []*packsv1.PackMessage{
		{Message: &packsv1.PackMessage_Result{Result: &packsv1.ToolResult{RequestId: 1, Part: []byte(`{"content":[]}`), Last: true}}},
		{Message: &packsv1.PackMessage_Result{Result: &packsv1.ToolResult{RequestId: 2, Part: make([]byte, 1000)}}},
		{Message: &packsv1.PackMessage_Result{Result: &packsv1.ToolResult{RequestId: 1, Error: &packsv1.ToolError{Code: 9, Message: "x"}}}},
		{Message: &packsv1.PackMessage_Progress{Progress: &packsv1.Progress{RequestId: 1, Message: "x"}}},
		{Message: &packsv1.PackMessage_Reload{Reload: &packsv1.Reload{Manifest: &packsv1.PackManifest{PackId: "p", Tools: []*packsv1.ToolDefinition{{Name: "a"}}}}}},
		{Message: &packsv1.PackMessage_Drain{Drain: &packsv1.Drain{}}},
	} {
		raw, err := proto.Marshal(msg)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	m, err := manifest.Check(&packsv1.PackManifest{PackId: "p"}, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var msg packsv1.PackMessage
		if frames.Unmarshal(raw, &msg) != nil {
			return
		}
		r := New(Options{Log: slog.New(slog.DiscardHandler), MaxResult: 100})
		s := newSession(r, Peer{}, Grant{}, "")
		if _, err := r.register(context.Background(), s, m); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			id, c, err := s.begin(func(sandbox.ToolProgress) {})
			if err != nil {
				t.Fatal(err)
			}
			c.sent = true
			_ = id
		}
		for range 3 {
			if s.handle(context.Background(), &msg) != nil {
				break
			}
		}
		if s.buffered > 200 || s.buffered < 0 {
			t.Errorf("%d bytes are kept", s.buffered)
		}
		_ = r.Close()
	})
}
