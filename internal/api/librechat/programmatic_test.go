package librechat

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// program runs the program of the sandbox as a process here, with the code as its first line.
type program struct {
	*testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	err strings.Builder
}

const testMark = "MARK"

func runProgram(t *testing.T, code string, tools ...string) *program {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal(err)
	}
	p := &program{T: t, cmd: exec.CommandContext(t.Context(), python, "-c", programmatic)}
	p.cmd.Stderr = &p.err
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.in.Close(); _ = p.cmd.Wait() })
	first := map[string]any{"code": code, "mark": testMark, "patience": 10}
	named := []map[string]string{}
	for _, name := range tools {
		named = append(named, map[string]string{"name": name, "python": identifier(name)})
	}
	first["tools"] = named
	p.send(first)
	return p
}

func (p *program) send(v any) {
	p.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		p.Fatal(err)
	}
	if _, err := p.in.Write(append(text, '\n')); err != nil {
		p.Fatal(err, p.err.String())
	}
}

// calls reads output until the code calls tools, and returns the calls.
func (p *program) calls() []toolCall {
	p.Helper()
	s := calls{mark: []byte("\x1e" + testMark)}
	for {
		piece, err := p.out.ReadBytes('\n')
		if err != nil {
			p.Fatalf("%v: %s", err, p.err.String())
		}
		for i := range piece { // as it may come
			if err := s.output(piece[i : i+1]); err == errCalls { //nolint:errorlint // itself
				return s.found
			} else if err != nil {
				p.Fatal(err)
			}
		}
	}
}

// rest is the output until the program ends.
func (p *program) rest() string {
	p.Helper()
	text, err := io.ReadAll(p.out)
	if err != nil {
		p.Fatal(err)
	}
	return string(text)
}

// TestProgram: code has its tools as functions; calls that it begins together are one round; a tool that fails raises an error.
func TestProgram(t *testing.T) {
	t.Parallel()
	p := runProgram(t, `
print("begin", end="")
a, b = await asyncio.gather(get_weather(city="SF"), get_weather(city="NY"))
print(a["degrees"] + b["degrees"])
try:
    await class_tool()
except RuntimeError as e:
    print("failed:", e)
print(input if False else "end")
`, "get-weather", "class")
	got := p.calls()
	if len(got) != 2 || got[0].Name != "get-weather" || string(got[0].Input) != `{"city": "SF"}` || string(got[1].Input) != `{"city": "NY"}` {
		t.Fatalf("%+v", got)
	}
	p.send([]toolResult{{ID: got[1].ID, Result: json.RawMessage(`{"degrees": 2}`)}, {ID: got[0].ID, Result: json.RawMessage(`{"degrees": 40}`)}})
	got = p.calls()
	if len(got) != 1 || got[0].Name != "class" || string(got[0].Input) != "{}" {
		t.Fatalf("%+v", got)
	}
	p.send([]toolResult{{ID: got[0].ID, Result: json.RawMessage("null"), IsError: true, Error: "no lesson"}})
	if text := p.rest(); text != "failed: no lesson\nend\n" {
		t.Errorf("%q, %s", text, p.err.String())
	}
}

// TestProgramFails: an error of the code shows where in the code it is, and code whose results do not come ends.
func TestProgramFails(t *testing.T) {
	t.Parallel()
	p := runProgram(t, "x = 1\nx.none\n")
	p.rest()
	if _ = p.cmd.Wait(); p.cmd.ProcessState.ExitCode() != 1 || !strings.Contains(p.err.String(), `File "main.py", line 2`) || !strings.Contains(p.err.String(), "AttributeError") {
		t.Errorf("%d %s", p.cmd.ProcessState.ExitCode(), p.err.String())
	}
	p = runProgram(t, "await a()", "a")
	p.calls()
	_ = p.in.Close()
	p.rest()
	if _ = p.cmd.Wait(); p.cmd.ProcessState.ExitCode() != 75 {
		t.Errorf("%d %s", p.cmd.ProcessState.ExitCode(), p.err.String())
	}
}

// TestRounds: an answer names the calls, the next request brings results, and the last answer has the output alone.
func TestRounds(t *testing.T) {
	h, a := setup(t, "")
	event := func(n int, name string, data any) string {
		text, _ := json.Marshal(data)
		return fmt.Sprintf("id: %d\nevent: %s\ndata: %s\n\n", n, name, text)
	}
	a.program = func(first string, after string) string {
		mark := "\x1e" + first
		if after == "0" {
			return event(1, "started", nil) + event(2, "stdout", map[string]string{"data": "hi " + mark[:9]}) +
				event(3, "stdout", map[string]string{"data": mark[9:] + `[{"id":"call_001","name":"t","input":{"a":1}}]` + "\n"})
		}
		zero := 0
		return event(4, "exit", sandbox.Result{Status: sandbox.StatusExited, ExitCode: &zero, Stdout: "hi " + mark + "[…]\nthere\n"})
	}
	status, got, text := send(t, h, http.MethodPost, prefix+"/exec/programmatic", strings.NewReader(`{"code":"await t(a=1)","tools":[{"name":"t","description":"…"}],"timeout":60000}`), asJSON)
	if status != http.StatusOK || got["status"] != "tool_call_required" || !strings.Contains(text, `"tool_calls":[{"id":"call_001","name":"t","input":{"a":1}}]`) {
		t.Fatalf("%d %s", status, text)
	}
	token := got["continuation_token"].(string)
	body, _ := json.Marshal(map[string]any{"continuation_token": token, "tool_results": []any{map[string]any{"call_id": "call_001", "result": "a\nb", "is_error": false}}})
	status, got, text = send(t, h, http.MethodPost, prefix+"/exec/programmatic", strings.NewReader(string(body)), asJSON)
	if status != http.StatusOK || got["status"] != "completed" || got["stdout"] != "hi there\n" || got["session_id"] == "" {
		t.Fatalf("%d %s", status, text)
	}
	if last := a.runs[len(a.runs)-1]; !strings.Contains(last, `{"data":"[{\"call_id\":\"call_001\",\"result\":\"a\\nb\",\"is_error\":false,\"error_message\":\"\"}]\n"}`) {
		t.Errorf("%s", last)
	}
	a.program = func(string, string) string { // the API waits until its client is gone, as nothing happens
		return ""
	}
	for body, want := range map[string]string{
		`{"continuation_token":"x"}`: "is not one of this server",
		`{"continuation_token":"` + strings.Replace(token, ".3.", ".9999999999999999999.", 1) + `"}`: "is not one of this server",
		`{"code":"x","lang":"bash"}`: "calls no tools",
		`{"tools":[]}`:               "code: is missing",
	} {
		if status, _, text := send(t, h, http.MethodPost, prefix+"/exec/programmatic", strings.NewReader(body), asJSON); status == http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
}

// TestIdentifier: names in Python are those that LibreChat tells models.
func TestIdentifier(t *testing.T) {
	for name, want := range map[string]string{"get-weather": "get_weather", "my tool": "my_tool", "class": "class_tool", "2fa": "_2fa", "a.b": "ab", "": "_", "ok": "ok"} {
		if got := identifier(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// FuzzCalls: output is hostile. Calls are found wherever it is cut, or refused.
func FuzzCalls(f *testing.F) {
	f.Add([]byte("a\x1eMARK[{\"id\":\"1\"}]\nb"), 3)
	f.Add([]byte("\x1eMARK{}\n"), 1)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		if cut < 0 || cut > len(data) {
			return
		}
		whole, pieces := calls{mark: []byte("\x1eMARK")}, calls{mark: []byte("\x1eMARK")}
		want := whole.output(data)
		got := pieces.output(data[:cut])
		if got == nil {
			got = pieces.output(data[cut:])
		}
		if (want == nil) != (got == nil) || !slices.EqualFunc(whole.found, pieces.found, func(a, b toolCall) bool { return a.ID == b.ID }) {
			t.Errorf("%q at %d: %v, %v", data, cut, want, got)
		}
	})
}
