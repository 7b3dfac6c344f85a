package mcpstdio

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
)

// paramHeaders knows which parameters of tools stand in headers, too (x-mcp-header in their schemas). Over HTTP a server
// compares them with the body; a client of stdio does not send them.
type paramHeaders struct {
	mu     sync.Mutex
	byTool map[string][]param
}

// param is a parameter that stands in a header.
type param struct {
	path   []string
	header string
}

const (
	paramPrefix = "Mcp-Param-"
	// maxParamTools and maxParamDepth bound what is remembered, and how deep a schema is searched.
	maxParamTools = 10_000
	maxParamDepth = 16
)

type schema struct {
	Header     string            `json:"x-mcp-header"`
	Properties map[string]schema `json:"properties"`
}

// learn reads an answer to tools/list.
func (p *paramHeaders) learn(msg []byte) {
	if !bytes.Contains(msg, []byte("x-mcp-header")) {
		return
	}
	var list struct {
		Result struct {
			Tools []struct {
				Name        string `json:"name"`
				InputSchema schema `json:"inputSchema"`
			} `json:"tools"`
		} `json:"result"`
	}
	if json.Unmarshal(msg, &list) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byTool == nil {
		p.byTool = map[string][]param{}
	}
	for _, t := range list.Result.Tools {
		if found := paramsOf(t.InputSchema, nil); len(found) > 0 && len(p.byTool) < maxParamTools {
			p.byTool[t.Name] = found
		}
	}
}

func paramsOf(s schema, path []string) (found []param) {
	if len(path) > maxParamDepth {
		return nil
	}
	for name, property := range s.Properties {
		below := append(append([]string{}, path...), name)
		if property.Header != "" {
			found = append(found, param{below, property.Header})
		}
		found = append(found, paramsOf(property, below)...)
	}
	return found
}

// set puts the parameters of a call into headers.
func (p *paramHeaders) set(h http.Header, tool string, arguments map[string]json.RawMessage) {
	p.mu.Lock()
	params := p.byTool[tool]
	p.mu.Unlock()
	for _, one := range params {
		if value, ok := valueAt(arguments, one.path); ok {
			h.Set(paramPrefix+one.header, value)
		}
	}
}

func valueAt(object map[string]json.RawMessage, path []string) (string, bool) {
	raw, ok := object[path[0]]
	if !ok {
		return "", false
	}
	if len(path) > 1 {
		var inner map[string]json.RawMessage
		if json.Unmarshal(raw, &inner) != nil {
			return "", false
		}
		return valueAt(inner, path[1:])
	}
	var text string
	if json.Unmarshal(raw, &text) == nil && raw[0] == '"' {
		return headerText(text), true
	}
	if raw[0] == '{' || raw[0] == '[' || string(raw) == "null" {
		return "", false
	}
	return string(raw), true // a number, true or false
}

// headerText writes a text as the value of a header: as it is, or in base64 where a header would change it.
func headerText(text string) string {
	plain := strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) < 0
	if plain && strings.TrimSpace(text) == text && text != "" && !strings.HasPrefix(text, "=?base64?") {
		return text
	}
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(text)) + "?="
}
