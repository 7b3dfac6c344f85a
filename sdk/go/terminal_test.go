package skerry_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	skerry "github.com/skerry-sandbox/skerry/sdk/go"
)

func inThread(t *testing.T, id string) *skerry.Thread {
	t.Helper()
	thread := connect(t).Thread(id)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := thread.Delete(ctx); err != nil && !errors.Is(err, skerry.NotFound) { // a test may have deleted it
			t.Error(err)
		}
	})
	return thread
}

// until reads a terminal until it has shown a text.
func until(t *testing.T, r io.Reader, text string) {
	t.Helper()
	var all []byte
	buf := make([]byte, 4096)
	for !bytes.Contains(all, []byte(text)) {
		n, err := r.Read(buf)
		if err != nil {
			t.Fatalf("%v before %q: %q", err, text, all)
		}
		all = append(all, buf[:n]...)
	}
}

// TestServerTerminal: a shell in a terminal takes what is typed and its size, is joined again where it was left, and ends.
func TestServerTerminal(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	thread := inThread(t, "go-terminal")
	started, err := thread.Start(ctx, skerry.Command{Argv: []string{"sh"}, PTY: &skerry.PTYSize{Cols: 80, Rows: 24}})
	if err != nil {
		t.Fatal(err)
	}
	term, err := thread.Terminal(ctx, started.ExecID, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := term.Resize(132, 50); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(term, "stty size; echo a''b\n"); err != nil {
		t.Fatal(err)
	}
	until(t, term, "50 132\r\nab") // in one: both may come in one event
	next := term.Next()
	if err := term.Close(); err != nil {
		t.Error(err)
	}
	again, err := thread.Terminal(ctx, started.ExecID, next-1)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close() //nolint:errcheck // it has ended
	if _, err := io.WriteString(again, "exit 7\n"); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(again)
	if err != nil || bytes.Contains(rest, []byte("50 132")) || again.Exit() == nil || again.Exit().ExitCode == nil || *again.Exit().ExitCode != 7 {
		t.Errorf("%q %+v %v", rest, again.Exit(), err)
	}
	_, err = thread.Terminal(ctx, "none", 0)
	if !errors.Is(err, skerry.NotFound) {
		t.Errorf("no exec: %v", err)
	}
}

// TestServerArchive: a folder comes as an archive, and goes into another one; a hostile one is refused.
func TestServerArchive(t *testing.T) {
	ctx := t.Context()
	thread := inThread(t, "go-archive")
	if _, err := thread.WriteFile(ctx, "/mnt/user-data/workspace/d/a.txt", []byte("one")); err != nil {
		t.Fatal(err)
	}
	for _, format := range []skerry.ArchiveFormat{"", skerry.Tar, skerry.Zip} {
		a, err := thread.GetArchive(ctx, "/mnt/user-data/workspace", format)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(a)
		if err = errors.Join(err, a.Close()); err != nil || a.LeftOut != 0 {
			t.Fatalf("%v, %d left out", err, a.LeftOut)
		}
		u, err := thread.PutArchive(ctx, "/mnt/user-data/outputs/x"+string(format), bytes.NewReader(data))
		if err != nil || u.Files != 1 || u.Bytes != 3 {
			t.Fatalf("%+v %v", u, err)
		}
		if text, err := thread.ReadFile(ctx, "/mnt/user-data/outputs/x"+string(format)+"/d/a.txt", 0, 0); err != nil || text.Content != "one" {
			t.Errorf("%+v %v", text, err)
		}
	}
	var evil bytes.Buffer
	z := gzip.NewWriter(&evil)
	w := tar.NewWriter(z)
	err := errors.Join(w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "/etc/passwd"}), w.Close(), z.Close())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := thread.PutArchive(ctx, "/mnt/user-data/outputs", &evil); !errors.Is(err, skerry.Invalid) {
		t.Errorf("a link: %v", err)
	}
}

// TestServerEvents: what happens in a thread is told, behind any event of it, until the thread is deleted.
func TestServerEvents(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	thread := inThread(t, "go-events")
	before, err := thread.Exec(ctx, skerry.Command{Command: "true"})
	if err != nil {
		t.Fatal(err)
	}
	follow := func(after string, each func(e skerry.ThreadEvent) (more bool, err error)) (kinds []string) {
		for e, err := range thread.Events.Follow(ctx, after) {
			if err != nil {
				t.Fatalf("%v after %v", err, kinds)
			}
			if e.Exec != nil && e.Exec.ExecID == before.ExecID { // its end may be told behind its answer
				continue
			}
			if e.Kind == "tools.changed" || e.Kind == "prompt.changed" { // packs of other clients' tests come and go
				continue
			}
			kinds = append(kinds, e.Kind)
			if more, err := each(e); err != nil {
				t.Fatal(err)
			} else if !more {
				break
			}
		}
		return kinds
	}
	resume := ""
	first := follow("", func(e skerry.ThreadEvent) (bool, error) {
		switch e.Kind {
		case "started":
			_, err := thread.ExecuteCode(ctx, skerry.Code{Language: "bash", Code: "echo 1 > a"})
			return true, err
		case "exec.ended":
			resume = e.ID
		}
		return e.Kind != "files.changed", nil
	})
	if all := strings.Join(first, " "); all != "started exec.started exec.ended files.changed" {
		t.Error(all)
	}
	again := follow(resume, func(e skerry.ThreadEvent) (bool, error) {
		if e.Kind == "files.changed" {
			return true, thread.Delete(ctx)
		}
		return true, nil
	})
	if all := strings.Join(again, " "); !strings.HasPrefix(all, "started files.changed") {
		t.Error(all)
	}
	for _, err := range thread.Events.Follow(ctx, "") {
		if !errors.Is(err, skerry.NotFound) {
			t.Errorf("no thread: %v", err)
		}
	}
}

// TestServerWatch: what a command and the API change is told, until the sandbox ends.
func TestServerWatch(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	thread := inThread(t, "go-watch")
	if res, err := thread.Exec(ctx, skerry.Command{Command: "true"}); err != nil || res.ExitCode == nil || *res.ExitCode != 0 {
		t.Fatalf("%+v %v", res, err)
	}
	var seen []string
	for c, err := range thread.WatchFiles(ctx, "/mnt/user-data/workspace", true) {
		if err != nil {
			t.Fatalf("%v after %v", err, seen)
		}
		seen = append(seen, c.Change+" "+c.Path)
		switch seen[len(seen)-1] {
		case "started /mnt/user-data/workspace":
			_, err = thread.Exec(ctx, skerry.Command{Command: "mkdir d && echo 1 > d/a"})
		case "created /mnt/user-data/workspace/d/a":
			err = thread.DeleteFile(ctx, "/mnt/user-data/workspace/d", true)
		case "deleted /mnt/user-data/workspace/d":
			err = thread.Release(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if all := strings.Join(seen, ", "); !strings.Contains(all, "created /mnt/user-data/workspace/d/a") || !strings.Contains(all, "deleted /mnt/user-data/workspace/d") {
		t.Error(all)
	}
	for _, err := range thread.WatchFiles(ctx, "/mnt/user-data/none", true) {
		if !errors.Is(err, skerry.NotFound) {
			t.Errorf("no folder: %v", err)
		}
	}
}
