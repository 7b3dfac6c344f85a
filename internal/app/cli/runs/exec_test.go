package runs

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
)

// house plays the API: one exec, whose events are what a test says.
type house struct {
	t      *testing.T
	events []string          // "stdout hello"; "wait" waits until the exec is killed, "stdin" until its input ends
	files  map[string]string // what the thread has
	result string            // fields of the last event

	mu     sync.Mutex
	asked  map[string]any // body of the exec
	typed  string
	killed chan struct{}
	closed chan struct{}
	began  chan struct{}
}

func serve(t *testing.T, h *house) *client.Client {
	t.Helper()
	h.t, h.killed, h.closed, h.began = t, make(chan struct{}), make(chan struct{}), make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/threads/t/exec", h.exec)
	mux.HandleFunc("POST /api/threads/t/execute_code", h.exec)
	mux.HandleFunc("POST /api/threads/t/execs/e1/stdin", h.stdin)
	mux.HandleFunc("DELETE /api/threads/t/execs/e1", func(w http.ResponseWriter, _ *http.Request) {
		close(h.killed)
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /api/threads/t/files/content", func(w http.ResponseWriter, r *http.Request) {
		text, ok := h.files[r.URL.Query().Get("path")]
		if !ok {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, text)
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	return &client.Client{Server: srv.URL}
}

func (h *house) exec(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	if err := json.NewDecoder(r.Body).Decode(&h.asked); err != nil {
		h.t.Error(err)
	}
	background := h.asked["background"] == true
	h.mu.Unlock()
	if background {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"exec_id":"e1","status":"running"}`)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	n := 0
	send := func(event, data string) {
		n++
		fmt.Fprintf(w, "id: %d\nevent: %s\ndata: %s\n\n", n, event, data)
		w.(http.Flusher).Flush()
	}
	send("started", `{"exec_id":"e1"}`)
	close(h.began)
	result := h.result
	for _, e := range h.events {
		what, text, _ := strings.Cut(e, " ")
		switch what {
		case "wait":
			select {
			case <-h.killed:
				result = `"status":"killed"`
			case <-time.After(30 * time.Second):
				h.t.Error("the exec was not killed")
			}
		case "stdin":
			<-h.closed
		default:
			data, _ := json.Marshal(text)
			send(what, `{"data":`+string(data)+`}`)
		}
	}
	if result == "" {
		result = `"status":"exited","exit_code":0`
	}
	send("exit", `{"exec_id":"e1",`+result+`}`)
}

func (h *house) stdin(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Data  string `json:"data"`
		Close bool   `json:"close"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		h.t.Error(err)
	}
	data, err := base64.StdEncoding.DecodeString(in.Data)
	if err != nil {
		h.t.Error(err)
	}
	h.mu.Lock()
	h.typed += string(data)
	h.mu.Unlock()
	if in.Close {
		close(h.closed)
	}
	w.WriteHeader(http.StatusNoContent)
}

// call runs a command line as the user does.
func call(ctx context.Context, command *cobra.Command, stdin io.Reader, stdout io.Writer, args ...string) (stderr string, err error) {
	var errs bytes.Buffer
	command.SilenceErrors, command.SilenceUsage = true, true
	command.SetArgs(args)
	command.SetIn(stdin)
	command.SetOut(stdout)
	command.SetErr(&errs)
	err = command.ExecuteContext(ctx)
	return errs.String(), err
}

func codeOf(err error) int {
	var code exit.Code
	var failed *exit.Failure
	switch {
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &failed):
		return failed.Code
	case err != nil:
		return 1
	}
	return 0
}

// TestExecAllOutput: what the events do not have comes from the file that the server kept. What is missing is said,
// and has an exit code of its own.
func TestExecAllOutput(t *testing.T) {
	const path = "/mnt/user-data/workspace/.skerry/execs/e1/stdout"
	cut := `"status":"exited","exit_code":0,"truncated":true,"stdout":"…","stdout_path":"` + path + `"`
	for name, c := range map[string]struct {
		h    *house
		out  string
		code int
		says string
	}{
		"all came": {&house{}, "one two ", 0, ""},
		"the rest": {&house{result: cut, files: map[string]string{path: "one two three"}}, "one two three", 0, ""},
		"a code":   {&house{result: strings.Replace(cut, ":0", ":7", 1), files: map[string]string{path: "one two three"}}, "one two three", 7, ""},
		"no file":  {&house{result: cut}, "one two ", exit.Partial, "stdout was cut"},
		"another":  {&house{result: cut, files: map[string]string{path: "evil instead"}}, "one two ", exit.Partial, "does not go on where the output ended"},
		"shorter":  {&house{result: cut, files: map[string]string{path: "one"}}, "one two ", exit.Partial, "does not go on where the output ended"},
		"not kept": {&house{result: `"status":"exited","exit_code":3,"truncated":true`}, "one two ", exit.Partial, "(the command ended with code 3)"},
		"too much": {&house{result: strings.Replace(cut, "…", firstPart+path, 1), files: map[string]string{path: "one two three"}}, "one two three", exit.Partial, "larger than what the server keeps"},
	} {
		t.Run(name, func(t *testing.T) {
			c.h.events = []string{"stdout one ", "stderr hm", "stdout two "}
			var out bytes.Buffer
			errs, err := call(t.Context(), NewExec(serve(t, c.h)), os.Stdin, &out, "t", "--", "x")
			if out.String() != c.out || errs != "hm" {
				t.Errorf("%q and %q", out.String(), errs)
			}
			if codeOf(err) != c.code || c.says != "" && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%d %v", codeOf(err), err)
			}
		})
	}
}

// TestExecStdin: what is piped reaches the command, and so does its end.
func TestExecStdin(t *testing.T) {
	h := &house{events: []string{"stdin", "stdout done"}}
	long := strings.Repeat("0123456789abcdef", 3*stdinAtOnce/16) + "end"
	var out bytes.Buffer
	if _, err := call(t.Context(), NewExec(serve(t, h)), strings.NewReader(long), &out, "t", "--", "cat"); err != nil || out.String() != "done" {
		t.Fatal(out.String(), err)
	}
	if h.typed != long || h.asked["keep_stdin"] != true {
		t.Errorf("%d bytes of %d, asked for %v", len(h.typed), len(long), h.asked)
	}
	h = &house{}
	if _, err := call(t.Context(), NewExec(serve(t, h)), strings.NewReader(long), &out, "-i=false", "t", "--", "x"); err != nil || h.typed != "" || h.asked["keep_stdin"] == true {
		t.Errorf("-i=false: %v, %v", err, h.asked)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	h = &house{}
	if _, err := call(t.Context(), NewExec(serve(t, h)), null, &out, "t", "--", "x"); err != nil || h.asked["keep_stdin"] == true {
		t.Errorf("/dev/null: %v, %v", err, h.asked)
	}
}

// TestExecInterrupted: an interruption ends the exec.
func TestExecInterrupted(t *testing.T) {
	h := &house{events: []string{"stdout a", "wait"}}
	api := serve(t, h)
	ctx, interrupt := context.WithCancel(t.Context())
	go func() { <-h.began; interrupt() }()
	var out bytes.Buffer
	_, err := call(ctx, NewExec(api), os.Stdin, &out, "t", "--", "sleep", "9")
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	select {
	case <-h.killed:
	default:
		t.Error("the exec goes on")
	}
}

// TestExecClosedPipe: when nothing reads the output any more, the exec is ended.
func TestExecClosedPipe(t *testing.T) {
	h := &house{events: []string{"stdout " + strings.Repeat("y\n", 100), "wait"}}
	api := serve(t, h)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	if _, err := call(t.Context(), NewExec(api), os.Stdin, w, "t", "--", "yes"); codeOf(err) != int(exitPipe) {
		t.Error(err)
	}
	select {
	case <-h.killed:
	default:
		t.Error("the exec goes on")
	}
}

// TestExecFlags: the flags reach the server; a value that is wrong does not stand in the error.
func TestExecFlags(t *testing.T) {
	t.Setenv("FROM_HERE", "here")
	h := &house{}
	var out bytes.Buffer
	_, err := call(t.Context(), NewExec(serve(t, h)), os.Stdin, &out, "-d", "-w", "/mnt/user-data", "-e", "A=b=c", "-e", "FROM_HERE", "-e", "NOT_THERE", "--env-secret", "TOKEN=github", "--redact-env", "t", "--", "env", "-0")
	if err != nil || out.String() != "e1\n" {
		t.Fatal(out.String(), err)
	}
	asked, _ := json.Marshal(h.asked)
	const want = `{"argv":["env","-0"],"background":true,"cwd":"/mnt/user-data","env":{"A":"b=c","FROM_HERE":"here"},"env_secrets":{"TOKEN":"github"},"keep_stdin":false,"redact_env":true,"timeout_s":60}`
	if string(asked) != want {
		t.Errorf("%s", asked)
	}
	for _, args := range [][]string{{"--env-secret", "hunter2", "t", "--", "x"}, {"-e", "=hunter2", "t", "--", "x"}, {"t", "ls", "-x"}, {"-t", "-d", "t", "--", "x"}, {}} {
		if _, err := call(t.Context(), NewExec(serve(t, &house{})), os.Stdin, &out, args...); codeOf(err) != exit.Usage || strings.Contains(err.Error(), "=hunter2") {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// TestExecJSON: with --json there is the result, and nothing else.
func TestExecJSON(t *testing.T) {
	h := &house{events: []string{"stdout hello"}, result: `"status":"exited","exit_code":4,"stdout":"hello"`}
	api := serve(t, h)
	api.JSON = true
	var out bytes.Buffer
	errs, err := call(t.Context(), NewExec(api), os.Stdin, &out, "t", "--", "x")
	var res client.Result
	if json.Unmarshal(out.Bytes(), &res) != nil || res.Stdout != "hello" || errs != "" || codeOf(err) != 4 {
		t.Errorf("%s %s %v", out.String(), errs, err)
	}
}

// TestCodeLanguage: the suffix says the language, unless the user does.
func TestCodeLanguage(t *testing.T) {
	for _, c := range []struct{ file, said, context, want string }{
		{"p.py", "", "", "python"}, {"a/b.TS", "", "", "typescript"}, {"x.mjs", "", "", "javascript"}, {"x.sh", "", "", "bash"}, {"x.wasm", "", "", "wasm"},
		{"p.py", "ts", "", "ts"}, {"-", "", "", ""}, {"p.py", "", "c1", ""},
	} {
		if got, err := languageOf(c.file, c.said, c.context); got != c.want || err != nil {
			t.Errorf("%v: %q %v", c, got, err)
		}
	}
	if _, err := languageOf("Makefile", "", ""); codeOf(err) != exit.Usage {
		t.Error(err)
	}
}
