package hub

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/tools/hub/transport"
)

// rawServer is an MCP server without any library, which does what no library does.
type rawServer struct {
	crash func()
	done  <-chan struct{} // ends what hangs and drips

	mu        sync.Mutex
	cancelled []string // ids of the calls that were cancelled
	lists     int
	tools     string // beyond those of rawTools
	ttl       int
	pages     int // of the list of tools, each with a tool of its own; 0 is one page with all
}

const (
	floodBytes = 24 << 20 // half as much again as the limit
	rawTools   = `{"name":"echo","inputSchema":{"type":"object"}},{"name":"flood","inputSchema":{"type":"object"}},{"name":"hang","inputSchema":{"type":"object"}},` +
		`{"name":"drip","inputSchema":{"type":"object"}},{"name":"crash","inputSchema":{"type":"object"}},{"name":"chatty","inputSchema":{"type":"object"}},` +
		`{"name":"ask","inputSchema":{"type":"object"}},` +
		`{"name":"lie","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}},` +
		`{"name":"omit","inputSchema":{"type":"object"},"outputSchema":{"type":"object"}},` +
		`{"name":"truth","title":"The truth","annotations":{"readOnlyHint":true},"inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}}`
)

type rawMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name      string          `json:"name"`
		Cursor    string          `json:"cursor"`
		RequestID json.RawMessage `json:"requestId"`
		Meta      json.RawMessage `json:"_meta"`
	} `json:"params"`
}

// answer writes what the server says to a message: whole messages by send, or a part of one by part.
func (s *rawServer) answer(m rawMessage, send func(string), part func(string)) {
	ok := func(result string) { send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)) }
	switch m.Method {
	case "initialize":
		ok(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"logging":{}},"serverInfo":{"name":"raw","version":"1"}}`)
	case "tools/list":
		s.mu.Lock()
		s.lists++
		list, ttl, pages := rawTools+s.tools, s.ttl, s.pages
		s.mu.Unlock()
		if pages > 0 {
			page, _ := strconv.Atoi(m.Params.Cursor)
			next := ""
			if page+1 < pages {
				next = fmt.Sprintf(`,"nextCursor":"%d"`, page+1)
			}
			ok(fmt.Sprintf(`{"tools":[{"name":"page%d","inputSchema":{"type":"object"}}]%s}`, page, next))
			return
		}
		ok(fmt.Sprintf(`{"tools":[%s],"ttlMs":%d}`, list, ttl))
	case "tools/call":
		s.call(m, ok, send, part)
	case "notifications/cancelled":
		s.mu.Lock()
		s.cancelled = append(s.cancelled, string(m.Params.RequestID))
		s.mu.Unlock()
	case "logging/setLevel":
		ok("{}")
	default:
		if m.ID != nil {
			send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, m.ID))
		}
	}
}

func (s *rawServer) call(m rawMessage, ok, send, part func(string)) {
	switch m.Params.Name {
	case "echo":
		ok(`{"content":[{"type":"text","text":"here"}]}`)
	case "flood":
		part(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{"content":[{"type":"text","text":"`)
		chunk := strings.Repeat("f", 1<<20)
		for range floodBytes / len(chunk) {
			part(chunk)
		}
		part(`"}]}}`)
		send("")
	case "hang":
		<-s.done
	case "drip":
		part(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{"content":[{"type":"text","text":"`)
		for {
			select {
			case <-s.done:
				return
			case <-time.After(20 * time.Millisecond):
				part("d")
			}
		}
	case "crash":
		s.crash()
	case "chatty":
		s.chat(m, send)
		ok(`{"content":[{"type":"text","text":"said"}]}`)
	case "ask":
		ok(`{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":{"mode":"form","message":"who?","requestedSchema":{"type":"object","properties":{}}}}},"requestState":"s"}`)
	case "lie":
		ok(`{"content":[],"structuredContent":{"n":"one"}}`)
	case "omit":
		ok(`{"content":[{"type":"text","text":"{}"}]}`)
	case "truth":
		ok(`{"content":[{"type":"text","text":"one"}],"structuredContent":{"n":1},"_meta":{"k":"v"}}`)
	}
}

// chat reports progress and logs, for this call and for a call that there is not.
func (s *rawServer) chat(m rawMessage, send func(string)) {
	var meta struct {
		Token json.RawMessage `json:"progressToken"`
	}
	_ = json.Unmarshal(m.Params.Meta, &meta)
	if meta.Token == nil {
		return
	}
	for i := range 3 {
		send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"total":3,"message":"step %d"}}`, meta.Token, i+1, i+1))
		send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"another","progress":99}}`)
	}
	send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"warning","logger":"chat","data":{"words":2}}}`)
	send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"` + strings.Repeat("l", 2*transport.MaxLogData) + `"}}`)
}

// serveRaw is the raw server on standard input and output.
func serveRaw() int {
	var out sync.Mutex
	s := &rawServer{crash: func() { os.Exit(7) }}
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return 0
		}
		var m rawMessage
		if json.Unmarshal(line, &m) != nil {
			continue
		}
		go func() {
			held := false
			part := func(text string) {
				if !held {
					out.Lock()
					held = true
				}
				_, _ = io.WriteString(os.Stdout, text)
			}
			s.answer(m, func(text string) {
				part(text + "\n")
				out.Unlock()
				held = false
			}, part)
		}()
	}
}

// ServeHTTP serves streamable HTTP: as one JSON message, or as events at a path that ends with "events".
func (s *rawServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	text, err := io.ReadAll(r.Body)
	var m rawMessage
	if err != nil || json.Unmarshal(text, &m) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if m.ID == nil {
		s.answer(m, func(string) {}, func(string) {})
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if strings.HasSuffix(r.URL.Path, "events") {
		w.Header().Set("Content-Type", "text/event-stream")
		send, part := eventWriter(w)
		s.answer(m, send, part)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	flush := func(text string) {
		if !strings.Contains(text, `"notifications/`) {
			_, _ = io.WriteString(w, text)
			w.(http.Flusher).Flush()
		}
	}
	s.answer(m, flush, flush)
}

func eventWriter(w io.Writer) (send, part func(string)) {
	begun := false
	part = func(text string) {
		if !begun {
			_, _ = io.WriteString(w, "data: ")
			begun = true
		}
		_, _ = io.WriteString(w, text)
		w.(http.Flusher).Flush()
	}
	return func(text string) {
		part(text + "\n\n")
		begun = false
	}, part
}

// oldSSE serves the transport of 2024-11-05: one stream of events for all answers.
type oldSSE struct {
	*rawServer
	mu     sync.Mutex
	stream http.ResponseWriter
}

func (s *oldSSE) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "event: endpoint\ndata: /post\n\n")
		w.(http.Flusher).Flush()
		s.mu.Lock()
		s.stream = w
		s.mu.Unlock()
		select {
		case <-r.Context().Done():
		case <-s.done:
		}
		s.mu.Lock()
		s.stream = nil
		s.mu.Unlock()
		return
	}
	text, _ := io.ReadAll(r.Body)
	var m rawMessage
	_ = json.Unmarshal(text, &m)
	w.WriteHeader(http.StatusAccepted)
	go func() {
		var whole bytes.Buffer
		s.answer(m, func(text string) {
			whole.WriteString(text)
			s.write(whole.String())
			whole.Reset()
		}, func(text string) { whole.WriteString(text) })
	}()
}

func (s *oldSSE) write(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream != nil {
		fmt.Fprintf(s.stream, "event: message\ndata: %s\n\n", text)
		s.stream.(http.Flusher).Flush()
	}
}
