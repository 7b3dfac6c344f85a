package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

const (
	workspace  = "/mnt/user-data/workspace/"
	manyFiles  = 10_000
	largeBytes = 100 << 20
	largeCalls = 20 // every so manieth round
)

// files compares a thread's files over HTTP with docker exec and docker cp.
func files(_ context.Context, b *bench) (err error) {
	source := filepath.Join(b.dir, "source")
	if err := os.Mkdir(source, 0o755); err != nil {
		return err
	}
	c, err := startContainer(baseImage, []string{"-v", source + ":/source:ro"}, "sleep", "3600")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.remove()) }()
	at := func(name string) string {
		return "/api/threads/bench/files/content?path=" + url.QueryEscape(workspace+name)
	}
	small := strings.Repeat("0123456789abcde\n", 64)
	large := bytes.Repeat([]byte(small), largeBytes/len(small))
	for name, content := range map[string][]byte{"small": []byte(small), "large": large} {
		if err := os.WriteFile(filepath.Join(source, name), content, 0o644); err != nil { //nolint:gosec // the container reads it
			return err
		}
	}
	write := func(name string, content []byte) func() error {
		return func() error {
			_, err := b.send(http.MethodPut, at(name), "application/octet-stream", bytes.NewReader(content))
			return err
		}
	}
	fetch := func(name string, size int) func() error {
		return func() error {
			got, err := b.post(http.MethodGet, at(name), nil)
			if err == nil && len(got) != size {
				err = fmt.Errorf("%d bytes came of %d", len(got), size)
			}
			return err
		}
	}
	copied := filepath.Join(b.dir, "copied")
	for _, row := range []struct {
		ours   side
		theirs side
	}{
		{side{name: "write a file of 1 KB", do: write("small", []byte(small))}, side{name: "docker exec cp", do: c.exec(nil, "cp", "/source/small", "/tmp/small"), every: 2}},
		{side{name: "read a file of 1 KB", do: fetch("small", len(small))}, side{name: "docker exec cat", do: c.exec(nil, "cat", "/source/small"), every: 2}},
		{
			side{name: "write a file of 100 MB", do: write("large", large), every: largeCalls},
			side{name: "docker cp", do: hostProgram("", "docker", "cp", filepath.Join(source, "large"), string(c)+":/tmp/large"), every: largeCalls},
		},
		{
			side{name: "read a file of 100 MB", do: fetch("large", len(large)), every: largeCalls},
			side{name: "docker cp", do: hostProgram("", "docker", "cp", string(c)+":/tmp/large", copied), every: largeCalls},
		},
	} {
		if err := b.compare(row.ours, rival{row.theirs, faster, bar{}}); err != nil {
			return err
		}
	}
	// The same program writes the same files for both.
	if err := hostProgram(source, "python3", "-c", manySources)(); err != nil {
		return err
	}
	if _, err := b.code("python", manySources); err != nil {
		return err
	}
	query := "/api/threads/bench/files/grep?path=" + url.QueryEscape(workspace+"many") + "&pattern=needle"
	err = b.compare(
		side{name: fmt.Sprintf("grep over %d files", manyFiles), do: func() error {
			raw, err := b.post(http.MethodGet, query, nil)
			if err == nil && bytes.Count(raw, []byte(`"line"`)) != manyFiles/1000 {
				err = fmt.Errorf("grep found %.300s", raw)
			}
			return err
		}, every: 4},
		rival{side{name: "docker exec grep -rn", do: c.exec(nil, "grep", "-rn", "needle", "/source/many"), every: 4}, faster, bar{}},
	)
	_, dropped := b.post(http.MethodDelete, "/api/threads/bench/files?recursive=true&path="+url.QueryEscape(workspace+"many"), nil)
	return errors.Join(err, dropped)
}

// manySources is a Python program that writes many small files below its folder; one in a thousand has the needle.
var manySources = fmt.Sprintf(`import os
text = "a line of a source file that says nothing\n" * 20
for i in range(%d):
    os.makedirs(f"many/{i // 100:03}", exist_ok=True)
    with open(f"many/{i // 100:03}/{i}.txt", "w") as f:
        f.write(text + ("here is the needle\n" if i %% 1000 == 0 else ""))
`, manyFiles)
