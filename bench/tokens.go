package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tiktoken-go/tokenizer"
)

// sizes are the corpora whose definitions are compared.
var sizes = []int{10, 26, 45, 161, 500}

// counter counts tokens with a vocabulary that is part of this program.
type counter struct{ codec tokenizer.Codec }

const vocabulary = tokenizer.O200kBase

func newCounter() (counter, error) {
	c, err := tokenizer.Get(vocabulary)
	return counter{c}, err
}

func (c counter) text(s string) (int, error) { return c.codec.Count(s) }

// prompt is what the server tells an agent to register and to say.
type prompt struct {
	Text     string            `json:"text"`
	Sections map[string]string `json:"sections"`
	Mode     string            `json:"mode"`
	Tools    []json.RawMessage `json:"tools"`
}

// definitions is what a model gets before the conversation begins.
func (p prompt) definitions() string {
	text := p.Text
	for _, t := range p.Tools {
		text += "\n" + string(t)
	}
	return text
}

// The definitions that an agent without Skerry would not have. Those of skills, and their section of the prompt, are in both
// modes: neither side has them here, for what is compared is how tools are called.
var (
	ofSkills = []string{"activate_skill", "read_skill_file", "search_skills", "run_skill"}
	ofSkerry = append([]string{"execute_code"}, ofSkills...)
)

// directOnly leaves out what Skerry adds: the prompt section, and its own tools.
func (p prompt) directOnly() prompt { return prompt{Mode: p.Mode, Tools: p.without(ofSkerry)} }

// codeOnly leaves out skills.
func (p prompt) codeOnly() prompt {
	return prompt{Mode: p.Mode, Text: p.Sections["code_execution"], Tools: p.without(ofSkills)}
}

func (p prompt) without(names []string) []json.RawMessage {
	return slices.DeleteFunc(slices.Clone(p.Tools), func(t json.RawMessage) bool {
		var d struct{ Name string }
		return json.Unmarshal(t, &d) == nil && slices.Contains(names, d.Name)
	})
}

// advice is the part of a section about code that says how to keep output small, with its worked example.
func advice(section string) (string, error) {
	before, rest, ok := strings.Cut(section, "<example>")
	example, _, ended := strings.Cut(rest, "</example>")
	if !ok || !ended {
		return "", errors.New("the prompt has no worked example")
	}
	return before[strings.LastIndex(strings.TrimSuffix(before, "\n"), "\n")+1:] + "<example>" + example + "</example>\n", nil
}

// tokens prints what tools cost in tokens, in both modes.
func tokens(_ context.Context, b *bench) error {
	count, err := newCounter()
	if err != nil {
		return err
	}
	for _, mode := range []string{"direct", "code"} {
		b.uses(mode)
		if _, err := b.post(http.MethodPut, "/api/threads/"+mode+"/sandbox", map[string]any{"mode": mode, "wait_s": 60}); err != nil {
			return err
		}
	}
	if err := b.definitionTokens(count); err != nil {
		return err
	}
	return b.storyTokens(count)
}

// commonQuery is a search that finds tools in each of the corpora.
const commonQuery = "search and read a file"

func (b *bench) definitionTokens(count counter) error {
	raw, all, err := readCorpus()
	if err != nil {
		return err
	}
	file := filepath.Join(b.dir, "corpus.json")
	if err := os.WriteFile(file, raw, 0o644); err != nil { //nolint:gosec // MCP servers run as nobody
		return err
	}
	for _, n := range sizes {
		servers, err := firstTools(all, b.self, file, n)
		if err != nil {
			return err
		}
		if err := b.configure(servers, n); err != nil {
			return err
		}
		direct, err := b.prompt("direct")
		if err != nil {
			return err
		}
		code, err := b.prompt("code")
		if err != nil {
			return err
		}
		if got := len(direct.directOnly().Tools); got != n {
			return fmt.Errorf("direct mode has %d definitions of %d tools", got, n)
		}
		x, err := count.text(direct.directOnly().definitions())
		if err != nil {
			return err
		}
		y, err := count.text(code.codeOnly().definitions())
		if err != nil {
			return err
		}
		// Code mode learns the parameters when it needs them.
		found, err := b.post(http.MethodGet, "/api/threads/code/tools?detail=full&query="+url.QueryEscape(commonQuery), nil)
		if err != nil {
			return err
		}
		z, err := count.text(string(found))
		if err != nil {
			return err
		}
		b.tokenRow(fmt.Sprintf("definitions of %d tools, %d servers", n, len(servers)), y, x, bar{})
		b.tokenRow("the same and one full search", y+z, x, bar{atLeast: 1})
	}
	return b.adviceTokens(count)
}

// adviceTokens says how much of each of these definitions is advice.
func (b *bench) adviceTokens(count counter) error {
	code, err := b.prompt("code")
	if err != nil {
		return err
	}
	text, err := advice(code.Sections["code_execution"])
	if err != nil {
		return err
	}
	n, err := count.text(text)
	if err != nil {
		return err
	}
	b.row("tokens", sample{Name: "of them, output advice and worked example", N: 1, P50: float64(n), P99: float64(n)}, nil, middle, bar{}, "")
	return nil
}

// tokenRow adds what code mode reads or writes, beside direct calls.
func (b *bench) tokenRow(name string, code, direct int, limit bar) {
	against := sample{Name: "direct calls", N: 1, P50: float64(direct), P99: float64(direct)}
	b.row("tokens", sample{Name: name, N: 1, P50: float64(code), P99: float64(code)}, &against, fewer, limit, "")
}

func (b *bench) prompt(thread string) (p prompt, err error) {
	raw, err := b.post(http.MethodGet, "/api/threads/"+thread+"/prompt", nil)
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return p, err
	}
	if p.Mode != thread {
		return p, fmt.Errorf("the thread %s is in mode %s", thread, p.Mode)
	}
	return p, nil
}

const configureTimeout = time.Minute

// configure makes these the MCP servers, and waits until n tools are there in each mode's thread.
func (b *bench) configure(servers map[string]any, n int) error {
	config, err := json.Marshal(map[string]any{"mcpServers": servers})
	if err != nil {
		return err
	}
	temp := filepath.Join(b.data, "new.json")
	if err := os.WriteFile(temp, config, 0o600); err != nil {
		return err
	}
	if err := os.Rename(temp, filepath.Join(b.data, "extensions_config.json")); err != nil {
		return err
	}
	var total struct {
		Tools   int             `json:"total_tools"`
		Servers json.RawMessage `json:"servers"`
	}
	for deadline := time.Now().Add(configureTimeout); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		raw, err := b.post(http.MethodGet, "/api/threads/direct/servers", nil)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(raw, &total); err != nil {
			return err
		}
		if total.Tools == n {
			return nil
		}
	}
	return fmt.Errorf("%d of %d tools are there: %s", total.Tools, n, total.Servers)
}
