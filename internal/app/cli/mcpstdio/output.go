package mcpstdio

import (
	"bytes"
	"encoding/json"
	"io"
	"sync"
)

// Codes of JSON-RPC.
const (
	codeParse    = -32700
	codeInternal = -32603
)

// output writes messages, a line each.
type output struct {
	mu sync.Mutex
	w  io.Writer
}

// write writes one message on one line. A client that takes none has closed its end, and the next read says so.
func (o *output) write(msg []byte) {
	var line bytes.Buffer
	if json.Compact(&line, msg) != nil {
		return // not JSON: nothing but MCP is written
	}
	line.WriteByte('\n')
	o.mu.Lock()
	defer o.mu.Unlock()
	_, _ = o.w.Write(line.Bytes())
}

// fail answers a request with an error.
func (o *output) fail(id json.RawMessage, code int, text string) {
	msg, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code, "message": text}})
	if err == nil {
		o.write(msg)
	}
}

// notify sends a notification of ours.
func (o *output) notify(method string) {
	o.write([]byte(`{"jsonrpc":"2.0","method":"` + method + `"}`))
}
