package transport

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// TestManyValues: a message of a server that would take a hundred times its bytes is not decoded, and the call that
// it answers fails. The result of a call is handed over as it is.
func TestManyValues(t *testing.T) {
	t.Parallel()
	many := "[" + strings.Repeat("{},", maxValues) + "{}]"
	for name, c := range map[string]struct {
		method, result string
		refused        bool
	}{
		"a list of tools":              {"tools/list", `{"tools":` + many + `}`, true},
		"one that fits":                {"tools/list", `{"tools":[{"name":"a"}]}`, false},
		"a long text":                  {"tools/list", `{"tools":"` + strings.Repeat("[,", maxValues) + `"}`, false},
		"content of a call":            {MethodCall, `{"content":` + many + `}`, false},
		"a call whose result is whole": {MethodCall, `{"structuredContent":` + many + `}`, true},
	} {
		var c2 Capture
		traffic := NewTraffic(16<<20, nil)
		id, err := jsonrpc.MakeID(7.0)
		if err != nil {
			t.Fatal(err)
		}
		traffic.await(&jsonrpc.Request{ID: id, Method: c.method}, &c2)
		out := string(traffic.text([]byte(`{"jsonrpc":"2.0","id":7,"result":`+c.result+`}`), &c2))
		if refused := strings.Contains(out, `"error"`) && len(out) < 1000; refused != c.refused {
			t.Errorf("%s: %.200s", name, out)
		}
		if !c.refused && string(c2.Look().Result) != c.result {
			t.Errorf("%s: another result is handed over: %.200s", name, c2.Look().Result)
		}
	}
	heard := 0
	traffic := NewTraffic(16<<20, func(*jsonrpc.Request, *Capture) { heard++ })
	for _, head := range []string{``, `"id":1,`} {
		if out := traffic.text([]byte(`{"jsonrpc":"2.0",`+head+`"method":"notifications/message","params":`+many+`}`), nil); len(out) > 1000 || heard > 0 {
			t.Errorf("%d bytes go on, %d heard", len(out), heard)
		}
	}
	s := &stdioConn{traffic: traffic, log: slog.New(slog.DiscardHandler)}
	if list := s.decode([]byte(many)); len(list) > 0 {
		t.Errorf("%d messages of a batch", len(list))
	}
	const note = `{"jsonrpc":"2.0","method":"x"}`
	if list := s.decode([]byte("[" + strings.Repeat(note+",", maxValues/2) + note + "]")); len(list) > 0 {
		t.Errorf("%d messages of a batch that is too large", len(list))
	}
}
