package jupyter

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/skerry-sandbox/skerry/internal/api/held"
)

// protocol is the version of Jupyter's messages that are spoken.
const protocol = "5.3"

// The channels of a kernel that a client hears of.
const (
	shell   = "shell"
	control = "control"
	iopub   = "iopub"
)

// header is that of a message.
type header struct {
	ID       string `json:"msg_id"`
	Type     string `json:"msg_type"`
	Username string `json:"username"`
	Session  string `json:"session"`
	Date     string `json:"date"`
	Version  string `json:"version"`
}

// received is a message of a client.
type received struct {
	Header  header          `json:"header"`
	Channel string          `json:"channel"`
	Content json.RawMessage `json:"content"`
	// raw is its header as it came: answers carry it as their parent.
	raw json.RawMessage
	// held is what it takes of memory, until it is answered.
	held *held.Request
}

// read reads a message of a client.
func read(data []byte) (received, error) {
	var m received
	if err := json.Unmarshal(data, &m); err != nil {
		return m, err
	}
	var parts struct {
		Header json.RawMessage `json:"header"`
	}
	err := json.Unmarshal(data, &parts)
	m.raw = parts.Header
	return m, err
}

// sent is a message of a kernel. Its type and id are also at the top, where Jupyter's own server repeats them.
type sent struct {
	Header   header          `json:"header"`
	ID       string          `json:"msg_id"`
	Type     string          `json:"msg_type"`
	Parent   json.RawMessage `json:"parent_header"`
	Metadata map[string]any  `json:"metadata"`
	Content  any             `json:"content"`
	Buffers  []string        `json:"buffers"`
	Channel  string          `json:"channel"`
}

// answers makes a message of a kernel.
func (m received) answers(channel, kind string, content any) sent {
	h := header{ID: uuid.NewString(), Type: kind, Username: "kernel", Session: m.Header.Session, Date: time.Now().UTC().Format(time.RFC3339Nano), Version: protocol}
	parent := m.raw
	if len(parent) == 0 {
		parent = json.RawMessage("{}")
	}
	return sent{h, h.ID, kind, parent, map[string]any{}, content, []string{}, channel}
}

// information is the content of kernel_info_reply.
func information(s specification, implementation string) map[string]any {
	return map[string]any{
		"status": "ok", "protocol_version": protocol, "implementation": "skerry", "implementation_version": implementation, "banner": "Skerry, " + s.shown,
		"language_info": map[string]any{"name": s.language, "version": "", "mimetype": s.mime, "file_extension": s.extension},
		"debugger":      false, "help_links": []any{},
	}
}
