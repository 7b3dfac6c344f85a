package sandbox

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestCheckCommand: each bound is taken, one more is refused, by the field that is wrong.
func TestCheckCommand(t *testing.T) {
	words := func(n int) []string { return strings.Split(strings.Repeat("a,", n-1)+"a", ",") }
	env := func(n int) map[string]string {
		m := map[string]string{}
		for i := range n {
			m[fmt.Sprint("V", i)] = ""
		}
		return m
	}
	long := func(n int) string { return strings.Repeat("x", n) }
	// fill returns words of n bytes together.
	fill := func(n int) (all []string) {
		for ; n > 1<<16+100; n -= 1 << 16 {
			all = append(all, long(1<<16))
		}
		return append(all, long(n))
	}
	fillEnv := func(n int) map[string]string {
		m := map[string]string{}
		for i, word := range fill(n) {
			name := fmt.Sprintf("V%03d", i)
			m[name] = word[len(name)+1:]
		}
		return m
	}
	sh := func(change func(*Command)) *Command {
		c := &Command{Shell: "true"}
		change(c)
		return c
	}
	for field, pair := range map[string][2]interface{ Validate() error }{
		"argv":             {&Command{Argv: words(MaxArgs)}, &Command{Argv: words(MaxArgs + 1)}},
		"argv ":            {&Command{Argv: []string{"a", ""}}, &Command{Argv: []string{""}}},
		"argv  ":           {&Command{Argv: []string{long(MaxWordBytes)}}, &Command{Argv: []string{"a", long(MaxWordBytes + 1)}}},
		"argv   ":          {&Command{Argv: []string{"a"}}, &Command{Argv: []string{"a\x00"}}},
		"command":          {&Command{Shell: long(MaxWordBytes)}, &Command{Shell: long(MaxWordBytes + 1)}},
		"command ":         {&Command{Argv: []string{"a"}}, &Command{}},
		"command  ":        {&Command{Shell: "a"}, &Command{Shell: "a", Argv: []string{"a"}}},
		"timeout_s":        {sh(func(c *Command) { c.Timeout = MaxExecTimeout }), sh(func(c *Command) { c.Timeout = MaxExecTimeout + time.Millisecond })},
		"timeout_s ":       {sh(func(*Command) {}), sh(func(c *Command) { c.Timeout = -1 })},
		"max_output_bytes": {sh(func(c *Command) { c.MaxOutputBytes = MaxOutputBytes }), sh(func(c *Command) { c.MaxOutputBytes = MaxOutputBytes + 1 })},
		"stdin":            {sh(func(c *Command) { c.Stdin = long(MaxStdinBytes) }), sh(func(c *Command) { c.Stdin = long(MaxStdinBytes + 1) })},
		"cwd":              {sh(func(c *Command) { c.Cwd = "/" + long(MaxCwdBytes-1) }), sh(func(c *Command) { c.Cwd = "/" + long(MaxCwdBytes) })},
		"cwd ":             {sh(func(c *Command) { c.Cwd = "/a" }), sh(func(c *Command) { c.Cwd = "a" })},
		"env":              {sh(func(c *Command) { c.Env = env(MaxEnv) }), sh(func(c *Command) { c.Env = env(MaxEnv + 1) })},
		"env.1A":           {sh(func(c *Command) { c.Env = map[string]string{"A1": ""} }), sh(func(c *Command) { c.Env = map[string]string{"1A": ""} })},
		"env.A":            {sh(func(c *Command) { c.Env = map[string]string{"A": long(MaxWordBytes - 2)} }), sh(func(c *Command) { c.Env = map[string]string{"A": long(MaxWordBytes - 1)} })},
		"env.A ":           {sh(func(*Command) {}), sh(func(c *Command) { c.Env = map[string]string{"A": "\x00"} })},
		"env.SKERRY_X":     {sh(func(*Command) {}), sh(func(c *Command) { c.Env = map[string]string{"SKERRY_X": ""} })},
		"env_secrets.MCP_": {sh(func(*Command) {}), sh(func(c *Command) { c.EnvSecrets = map[string]string{"MCP_": ""} })},
		"env_secrets":      {sh(func(*Command) {}), sh(func(c *Command) { c.Env, c.EnvSecrets = env(1), env(1) })},
		"pty":              {sh(func(c *Command) { c.Background, c.Terminal = true, &TerminalSize{Cols: MaxTerminalSide, Rows: 1} }), sh(func(c *Command) { c.Background, c.Terminal = true, &TerminalSize{Cols: 0, Rows: 1} })},
		"pty ":             {sh(func(*Command) {}), sh(func(c *Command) { c.Terminal = &TerminalSize{Cols: 1, Rows: 1} })},
		"argv    ":         {&Command{Argv: fill(MaxArgvBytes)}, &Command{Argv: fill(MaxArgvBytes + 1)}},
		"args  ":           {&Script{Path: "a", Args: fill(MaxArgvBytes)}, &Script{Path: "a", Args: fill(MaxArgvBytes + 1)}},
		"env ":             {sh(func(c *Command) { c.Env = fillEnv(MaxEnvBytes) }), sh(func(c *Command) { c.Env = fillEnv(MaxEnvBytes + 1) })},
		"args":             {&Script{Path: "a", Args: words(MaxScriptArgs)}, &Script{Path: "a", Args: words(MaxScriptArgs + 1)}},
		"args ":            {&Script{Path: "a", Args: words(1)}, &Script{Path: "a", Args: []string{"\x00"}}},
		"script":           {&Script{Module: "a.b"}, &Script{Path: "a", Module: "a.b"}},
		"script ":          {&Script{Path: "a"}, &Script{}},
		"module":           {&Script{Module: long(MaxModuleBytes)}, &Script{Module: long(MaxModuleBytes + 1)}},
		"module ":          {&Script{Module: "_a1._b2"}, &Script{Module: "../a"}},
		"module  ":         {&Script{Module: "a"}, &Script{Module: "-c"}},
		"cwd    ":          {&Script{Path: "a", Cwd: "/a"}, &Script{Path: "a", Cwd: "a"}},
		"code":             {&Code{Language: "bash", Text: long(MaxCodeBytes)}, &Code{Language: "bash", Text: long(MaxCodeBytes + 1)}},
		"code ":            {&Code{Language: "bash", Text: "a"}, &Code{Language: "bash", Text: " \n"}},
		"code  ":           {&Code{Language: "wasm", Text: "AGFzbQEAAAA=\n"}, &Code{Language: "wasm", Text: "AGFzbQEAAAA"}},
		"code   ":          {&Code{Language: "wasm", Text: "/mnt/user-data/workspace/a.wasm"}, &Code{Language: "wasm", Text: "/mnt/user-data/../a.wasm"}},
		"code    ":         {&Code{Language: "wasm", Text: "/mnt/skills/public/a/b.wasm"}, &Code{Language: "wasm", Text: "/home/agent/a.wasm"}},
		"code     ":        {&Code{Language: "wasm", Text: "/mnt/plugins/a/b.wasm"}, &Code{Language: "wasm", Text: "/mnt/user-data/a.py"}},
		"code      ":       {&Code{ContextID: "c", Text: "print(1)"}, &Code{Language: "wasm", Text: "print(1)"}},
		"code       ":      {&Code{Language: "wasm", Text: "AGFzbQEAAAA="}, &Code{Language: "wasm", Text: "AGFzbQ0AAQA="}}, // a component
		"code        ":     {&Code{Language: "wasm", Text: "AGFzbQEAAAA="}, &Code{Language: "wasm", Text: "f0VMRgIBAQA="}}, // a program of Linux
		"code         ":    {&Code{Language: "wasm", Text: "/mnt/skills/a.wasm"}, &Code{Language: "wasm", Text: "/mnt/skills/\x00.wasm"}},
		"language":         {&Code{ContextID: "c", Text: "a"}, &Code{Language: "ruby", Text: "a"}},
		"language ":        {&ContextRequest{Language: "python"}, &ContextRequest{Language: "bash"}},
		"cwd  ":            {&ContextRequest{Language: "python", Cwd: "/" + long(MaxCwdBytes-1)}, &ContextRequest{Language: "python", Cwd: "/" + long(MaxCwdBytes)}},
		"cwd   ":           {&ContextRequest{Language: "python", Cwd: "/a"}, &ContextRequest{Language: "python", Cwd: "a"}},
		"timeout":          {&Code{Language: "bash", Text: "a", Timeout: MaxCodeTimeout}, &Code{Language: "bash", Text: "a", Timeout: MaxCodeTimeout + 1}},
		"max_output_chars": {&Code{Language: "bash", Text: "a", MaxOutputChars: MaxOutputChars}, &Code{Language: "bash", Text: "a", MaxOutputChars: MaxOutputChars + 1}},
	} {
		field = strings.TrimSpace(field)
		if err := pair[0].Validate(); err != nil {
			t.Errorf("%s: the bound itself is refused: %v", field, err)
		}
		var e *Error
		if err := pair[1].Validate(); !errors.As(err, &e) || e.Kind != Invalid || len(e.Fields) != 1 || e.Fields[0].Name != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// TestCheckSandboxEnv: what is kept for a thread is smaller than what one exec may have.
func TestCheckSandboxEnv(t *testing.T) {
	env := map[string]string{}
	for _, name := range []string{"A", "B", "C"} {
		if err := CheckSandboxEnv(env); err != nil {
			t.Errorf("%d variables: %v", len(env), err)
		}
		env[name] = strings.Repeat("x", 100<<10)
	}
	if err := CheckSandboxEnv(env); KindOf(err) != Invalid || CheckEnv("env", env) != nil {
		t.Errorf("300 KiB: %v", err)
	}
	if err := CheckSandboxEnv(map[string]string{"SKERRY_X": ""}); KindOf(err) != Invalid {
		t.Errorf("a name of the server's: %v", err)
	}
}
