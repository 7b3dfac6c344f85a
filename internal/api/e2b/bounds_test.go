package e2b

import (
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/skerry-sandbox/skerry/internal/api/e2b/envd/filesystem"
	"github.com/skerry-sandbox/skerry/internal/api/e2b/envd/process"
	"github.com/skerry-sandbox/skerry/internal/api/e2b/envd/process/processconnect"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestEveryRequestHasLimits: a request without a row would be refused.
func TestEveryRequestHasLimits(t *testing.T) {
	t.Parallel()
	for _, file := range []protoreflect.FileDescriptor{process.File_internal_api_e2b_envd_process_process_proto, filesystem.File_internal_api_e2b_envd_filesystem_filesystem_proto} {
		for i := range file.Services().Len() {
			for methods, j := file.Services().Get(i).Methods(), 0; j < methods.Len(); j++ {
				m := methods.Get(j)
				if limits := requests.Of(m.Input()); limits.Bytes == 0 && m.Name() != "StreamInput" {
					t.Errorf("%s has none", m.Input().FullName())
				}
			}
		}
	}
}

// TestManyWords: a word has two bytes and takes sixteen of memory and more, so that values are counted first,
// in each form of a message, compressed or not.
func TestManyWords(t *testing.T) {
	t.Parallel()
	h, srv := start(t)
	id := create(t, srv.URL, `{"timeout":60}`)
	h.events = []sandbox.Event{exited(0)}
	ask := func(words int, options ...connect.ClientOption) error {
		c := processconnect.NewProcessClient(http.DefaultClient, srv.URL, options...)
		r := connect.NewRequest(&process.StartRequest{Process: &process.ProcessConfig{Cmd: "x", Args: make([]string, words)}})
		about(r, id)
		s, err := c.Start(t.Context(), r)
		if err != nil {
			return err
		}
		for s.Receive() { //nolint:revive // to its end
		}
		_ = s.Close()
		return s.Err()
	}
	for name, options := range map[string][]connect.ClientOption{
		"protobuf": nil, "JSON": {connect.WithProtoJSON()}, "gzip": {connect.WithSendGzip()}, "JSON, gzip": {connect.WithProtoJSON(), connect.WithSendGzip()}, "gRPC-Web": {connect.WithGRPCWeb()},
	} {
		if err := ask(sandbox.MaxArgs-1, options...); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := ask(100_000, options...); connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "values") {
			t.Errorf("%s: %v", name, err)
		}
	}
	body := `{"code":"1","env_vars":{"a":[` + strings.Repeat("[],", 300_000) + `0]}}`
	if status, answer := call(t, "POST", srv.URL+"/execute", id, body); status != 400 || !strings.Contains(answer, "values") {
		t.Errorf("%d %.200s", status, answer)
	}
}
