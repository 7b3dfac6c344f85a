package transport

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/skerry-sandbox/skerry/internal/platform/jsonedit"
)

func TestFrames(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", 300_000)
	in := "\n  \n{\"a\":1}\r\n" + `{"result":{"id":7,"t":"` + big + `"},"x":"id","jsonrpc":"2.0","id":42}` + "\n" +
		`{"id":"a\"b","result":"` + big + "\"}\n" + `["` + big + "\"]\n" + `{"b":"` + strings.Repeat("y", 90_000) + "\"}\nlast"
	f := newFrames(iotest.HalfReader(strings.NewReader(in)), 100_000)
	var got []string
	for {
		line, err := f.next()
		var large tooLarge
		switch {
		case errors.As(err, &large):
			got = append(got, "large "+string(large.id))
			continue
		case errors.Is(err, io.EOF):
		case err != nil:
			t.Fatal(err)
		default:
			got = append(got, fmt.Sprintf("%.8s %d", line, len(line)))
			continue
		}
		break
	}
	want := []string{`{"a":1} 7`, "large 42", `large "a\"b"`, "large ", `{"b":"yy 90008`, "last 4"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// FuzzIDScanner: the id that the scanner finds in a message, in parts of any size, is the message's id.
func FuzzIDScanner(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":17,"result":{"id":3,"a":["id",{"id":"x"}]}}`), 3)
	f.Add([]byte(`{"result":"\"id\":5,","id" : "a\\\"}"  }`), 1)
	f.Add([]byte(`[{"id":1}]`), 2)
	f.Add([]byte(`{"a":"id","b":"c"}`), 2)
	f.Fuzz(func(t *testing.T, text []byte, size int) {
		var s idScanner
		for part := text; len(part) > 0; {
			n := min(max(size, 1), len(part))
			s.scan(part[:n])
			part = part[n:]
		}
		o, err := jsonedit.Members(text, "")
		if err != nil || bytes.Contains(text, []byte(`\u`)) {
			return
		}
		m, ok := o.Find("id")
		simple := ok && len(m.Value(text)) < maxID && m.Value(text)[0] != '{' && m.Value(text)[0] != '['
		if simple && string(s.id) != string(m.Value(text)) {
			t.Errorf("%s: id %q, want %q", text, s.id, m.Value(text))
		}
		if !ok && s.id != nil {
			t.Errorf("%s: id %q, there is none", text, s.id)
		}
	})
}

// readEvents reads a stream that answers the call 5, whose result is for c.
func readEvents(t *testing.T, in string, limit int, c *Capture) string {
	t.Helper()
	b := &eventBody{body: io.NopCloser(iotest.OneByteReader(strings.NewReader(in))), traffic: NewTraffic(limit, nil), id: json.RawMessage("5"), by: c}
	msg, err := jsonrpc.DecodeMessage([]byte(`{"jsonrpc":"2.0","id":5,"method":"tools/call"}`))
	if err != nil {
		t.Fatal(err)
	}
	b.traffic.await(msg.(*jsonrpc.Request), c)
	out, err := io.ReadAll(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestEvents(t *testing.T) {
	t.Parallel()
	in := "id: 1\r\ndata:\r\n\r\n: comment\n\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\ndata: \"method\":\"notifications/x\"}\n\n" +
		"data: {\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"a\"}],\"structuredContent\":{\"z\":1.50}}}\n\nid: 9"
	c := &Capture{}
	got := readEvents(t, in, 1000, c)
	if !strings.HasPrefix(got, "id: 1\ndata: \n\n: comment\n\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\ndata: \"method\":\"notifications/x\"}\n\n") || !strings.HasSuffix(got, "id: 9\n\n") {
		t.Errorf("%q", got)
	}
	if raw := string(c.Look().Result); !strings.Contains(raw, `"z":1.50`) || strings.Contains(got, "1.50") {
		t.Errorf("captured %q of %q", raw, got)
	}
	c = &Capture{}
	got = readEvents(t, "data: "+strings.Repeat("x", 500_000)+"\n\ndata: after\n\n", 1000, c)
	if !c.Look().TooLarge || !strings.Contains(got, `"id":5`) || !strings.Contains(got, "data: after") || len(got) > 1000 {
		t.Errorf("%.200q, %d bytes", got, len(got))
	}
	// On a stream of many answers the id of the too large one is found in it.
	c = &Capture{}
	got = readEvents(t, "data: {\"jsonrpc\":\"2.0\",\ndata: \"result\":{\"id\":9,\"x\":\""+strings.Repeat("x", 100_000)+"\"},\"id\":7}\n\n", 1000, c)
	if c.Look().TooLarge || !strings.Contains(got, `"id":7,"error"`) {
		t.Errorf("%.200q", got)
	}
}

func FuzzEvents(f *testing.F) {
	f.Add("data: {\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{}}\n\n", 100)
	f.Add("event: a\rdata\n\n\ndata: x", 3)
	f.Fuzz(func(t *testing.T, in string, limit int) {
		got := readEvents(t, in, min(max(limit, 0), 1000), &Capture{})
		if len(got) > 2*len(in)+1000 {
			t.Errorf("%d bytes became %d", len(in), len(got))
		}
	})
}

// TestLighten: what the SDK reads in place of a result has the flags that it acts upon.
func TestLighten(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"content":[{"type":"text","text":"a"}],"isError":true,"_meta":{"x":1}}`:           `{"content":[],"isError":true}`,
		`{"content":[],"resultType":"complete"}`:                                            `{"content":[],"resultType":"complete"}`,
		`{"resultType":"input_required","inputRequests":{"a":{"method":"x"}},"content":[]}`: "",
		`{"structuredContent":{}}`:                                                          "",
		`"text"`:                                                                            "",
	} {
		c := &Capture{}
		got := string(c.lighten(json.RawMessage(in)))
		if want == "" {
			want = in
		}
		if got != want || string(c.Look().Result) != in {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func TestTooLargeAnswer(t *testing.T) {
	t.Parallel()
	msg, err := jsonrpc.DecodeMessage(tooLargeAnswer(json.RawMessage(`"a"`), 5))
	if res, ok := msg.(*jsonrpc.Response); err != nil || !ok || res.ID.Raw() != "a" || res.Error == nil {
		t.Errorf("%v %+v", err, msg)
	}
}
