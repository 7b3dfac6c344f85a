package main

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
)

//go:embed testdata/tools.json.gz
var corpusFile []byte

// corpusServer is a real MCP server as it described itself; testdata/README.md says where from.
type corpusServer struct {
	Server      string `json:"server"`
	Description string `json:"description"`
	Tools       []struct {
		Name         string          `json:"name"`
		Description  string          `json:"description"`
		InputSchema  json.RawMessage `json:"inputSchema"`
		OutputSchema json.RawMessage `json:"outputSchema"`
	} `json:"tools"`
}

// readCorpus returns the text of the corpus and its servers.
func readCorpus() ([]byte, []corpusServer, error) {
	z, err := gzip.NewReader(bytes.NewReader(corpusFile))
	if err != nil {
		return nil, nil, fmt.Errorf("corpus: %w", err)
	}
	raw, err := io.ReadAll(z)
	if err != nil {
		return nil, nil, fmt.Errorf("corpus: %w", err)
	}
	var all []corpusServer
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, nil, fmt.Errorf("corpus: %w", err)
	}
	return raw, all, nil
}

// firstTools is the configuration of MCP servers that show the first n tools of the corpus, and how
// many servers these are. The error is that there are fewer.
func firstTools(all []corpusServer, program, file string, n int) (map[string]any, error) {
	servers, left := map[string]any{}, n
	for _, c := range all {
		if left == 0 {
			break
		}
		take := min(left, len(c.Tools))
		servers[c.Server] = map[string]any{
			"command": program, "args": []string{serverArg, "replay", file, c.Server, fmt.Sprint(take)}, "description": c.Description,
		}
		left -= take
	}
	if left > 0 {
		return nil, fmt.Errorf("the corpus has %d tools fewer than %d", left, n)
	}
	return servers, nil
}
