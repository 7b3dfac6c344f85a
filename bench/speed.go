package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	baseImage = "skerry/base:latest"
	dataImage = "skerry/data:latest"
	printTS   = "const x: number = 1; console.log(x)"
	megabyte  = "yes 0123456789abcde | head -c 1048576"
	// preloadTime bounds what an interpreter takes until it waits with NumPy and pandas imported.
	preloadTime = 30 * time.Second
	numpy       = "import numpy; print(numpy.arange(10).sum())"
)

// speed is a table: what runs with us, and beside it what else runs it.
func speed(_ context.Context, b *bench) (err error) {
	var stops []func() error
	defer func() {
		for _, stop := range stops {
			err = errors.Join(err, stop())
		}
	}()
	// npx comes from the host, and tsx from where the MCP servers are: the image has neither.
	options := []string{"-v", filepath.Join(b.cache, "mcp") + ":/opt/mcp:ro"}
	npm, noNPM := npmDir()
	if noNPM == nil {
		options = append(options, "-v", npm+":/opt/npm:ro")
	}
	base, err := startContainer(baseImage, options, "sleep", "3600")
	if err != nil {
		return err
	}
	stops = append(stops, base.remove)
	floor, stopFloor, err := b.floor(baseImage)
	if err != nil {
		return err
	}
	stops = append(stops, stopFloor)
	prints := func(language, text string) func() error {
		return func() error { _, err := b.code(language, text); return err }
	}

	if err := b.compare(
		side{name: "exec true", do: func() error { return b.exec("bench", "true") }},
		rival{side{name: "docker exec true", do: base.exec(nil, "true"), every: 2}, faster, bar{atLeast: 40}},
		rival{side{name: "floor: fork behind a unix socket", do: floor}, cost, bar{atMost: 3}},
	); err != nil {
		return err
	}
	if err := b.compare(
		side{name: "1 MB of output", do: func() error { return b.exec("bench", "sh", "-c", megabyte) }},
		rival{side{name: "docker exec, the same", do: base.exec(nil, "sh", "-c", megabyte), every: 4}, faster, bar{}},
	); err != nil {
		return err
	}
	rivals := []rival{
		{side{name: "docker exec python3 -c", do: base.exec(nil, "python3", "-c", "print(1)"), every: 4}, faster, bar{atLeast: 15}},
		{side{name: "python3 -c on the host, unsealed", do: hostProgram("", "python3", "-c", "print(1)"), every: 4}, faster, bar{}},
	}
	if llm, stop, err := b.llmSandbox(baseImage); err != nil {
		b.leave("llm-sandbox", err.Error())
	} else {
		stops = append(stops, stop)
		rivals = append(rivals, rival{side{name: "llm-sandbox, an open session", do: llm, every: 10}, faster, bar{}})
	}
	if err := b.compare(side{name: "Python print", do: prints("python", "print(1)")}, rivals...); err != nil {
		return err
	}
	if err := b.numpySpeed(&stops); err != nil {
		return err
	}
	mcp := filepath.Join(b.cache, "mcp")
	rivals = []rival{{side{name: "npx tsx on the host, unsealed", do: hostProgram(mcp, "npx", "--no-install", "tsx", "-e", printTS), every: 10}, faster, bar{}}}
	if noNPM != nil {
		b.leave("docker exec npx tsx", noNPM.Error())
	} else {
		npx := base.exec([]string{"-w", "/opt/mcp"}, "node", "/opt/npm/bin/npx-cli.js", "--no-install", "tsx", "-e", printTS)
		rivals = append([]rival{{side{name: "docker exec npx tsx", do: npx, every: 10}, faster, bar{atLeast: 60}}}, rivals...)
	}
	if err := b.compare(side{name: "TypeScript print (bun)", do: prints("typescript", printTS)}, rivals...); err != nil {
		return err
	}
	for _, c := range []struct{ language, text string }{{"python", "print(1)"}, {"typescript", printTS}} {
		id, err := b.newContext(c.language)
		if err != nil {
			return err
		}
		if err := b.compare(
			side{name: "in a context, " + c.language, do: func() error { return b.inContext(id, c.text) }},
			rival{side{name: "in a fresh interpreter", do: prints(c.language, c.text)}, faster, bar{atLeast: 1}},
		); err != nil {
			return err
		}
	}
	return nil
}

// numpySpeed compares in sandboxes of the image data, whose template has Python wait with numpy imported.
func (b *bench) numpySpeed(stops *[]func() error) error {
	if err := exec.Command("docker", "image", "inspect", dataImage).Run(); err != nil {
		b.leave("Python, import numpy", "there is no image "+dataImage+" (make images IMAGES=data)")
		return nil
	}
	data, err := startContainer(dataImage, nil, "sleep", "3600")
	if err != nil {
		return err
	}
	*stops = append(*stops, data.remove)
	b.uses("data")
	if _, err := b.post(http.MethodPut, "/api/threads/data/sandbox", map[string]any{"template": "data", "wait_s": 60}); err != nil {
		return err
	}
	defer func() { _ = b.drop("data") }() // else it is deleted in the end
	// Its Python starts with the sandbox, and takes a second to import what it is to import.
	for late := time.Now().Add(preloadTime); ; time.Sleep(100 * time.Millisecond) {
		out, err := b.codeIn("data", "python", "import sys; print('numpy' in sys.modules)")
		if err != nil {
			return err
		}
		if strings.TrimSpace(out) == "True" || time.Now().After(late) {
			break
		}
	}
	return b.compare(
		side{name: "Python, import numpy, one waits", do: func() error { _, err := b.codeIn("data", "python", numpy); return err }},
		rival{side{name: "docker exec python3 -c, the same", do: data.exec(nil, "python3", "-c", numpy), every: 4}, faster, bar{atLeast: 20}},
	)
}

// npmDir is the folder of the host's npm, in which npx is.
func npmDir() (string, error) {
	path, err := exec.LookPath("npx")
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return "", err
	}
	if filepath.Base(path) != "npx-cli.js" {
		return "", fmt.Errorf("%s is not that of npm", path)
	}
	return filepath.Dir(filepath.Dir(path)), nil
}

func (b *bench) newContext(language string) (id string, err error) {
	raw, err := b.post(http.MethodPost, "/api/threads/bench/contexts", map[string]any{"language": language})
	if err != nil {
		return "", err
	}
	var made struct {
		ID string `json:"context_id"`
	}
	return made.ID, json.Unmarshal(raw, &made)
}

func (b *bench) inContext(id, text string) error {
	raw, err := b.post(http.MethodPost, "/api/threads/bench/execute_code", map[string]any{"code": text, "context_id": id})
	if err != nil {
		return err
	}
	if out, err := output(raw); err != nil || strings.TrimSpace(out) != "1" {
		return fmt.Errorf("a run in a context: %s", raw)
	}
	return nil
}
