package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The official conformance suite (@modelcontextprotocol/conformance) against /mcp. Reference servers stand
// behind it, and what they score directly they have to score behind it. What fails stands in
// testdata/conformance-server.json with its reason; what stands there has to fail.

// baseline is a run's expected failures, each with its reason: by scenario, or by "scenario: check" where
// the scenario as a whole is not worse, as with what the protocol only recommends.
type baseline map[string]string

func readBaseline(t *testing.T, run string) baseline {
	t.Helper()
	text, err := os.ReadFile("testdata/conformance-server.json")
	must(t, err)
	var all map[string]baseline
	must(t, json.Unmarshal(text, &all))
	if all[run] == nil {
		t.Fatalf("no baseline for %s", run)
	}
	for scenario, reason := range all[run] {
		if len(reason) < 20 {
			t.Errorf("%s: %s is expected to fail, without a reason", run, scenario)
		}
	}
	return all[run]
}

// score is what a server got in one scenario. Warnings and what was skipped count for nothing.
type score struct {
	passed, failed int
	why            []string       // of failures
	ok             map[string]int // how often each check passed
	bad            map[string]bool
}

type scores map[string]score

// program returns a program of the suite's folder of npm packages.
func npmProgram(t *testing.T, path string) string {
	t.Helper()
	dir := os.Getenv("SKERRY_MCP_DIR")
	if dir == "" {
		dir = filepath.Join(cache(), "mcp")
	}
	file := filepath.Join(dir, "node_modules", path)
	_, err := os.Stat(file)
	need(t, err == nil, "the npm package of "+path)
	return file
}

var resultDir = regexp.MustCompile(`^server-(.*)-\d{4}-\d{2}-\d{2}T`)

// conform runs the suite: with which, either --requirements and a revision or --scenario and a name.
func conform(t *testing.T, url string, which ...string) scores {
	t.Helper()
	node, suite := npmProgram(t, "node/bin/node"), npmProgram(t, "@modelcontextprotocol/conformance/dist/index.js")
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	dir := t.TempDir()
	cmd := exec.CommandContext(ctx, node, append([]string{suite, "server", "--url", url, "--timeout", "20000", "-o", dir}, which...)...)
	out, err := cmd.CombinedOutput() // its exit code only says whether something failed
	if ctx.Err() != nil {
		t.Fatalf("the suite did not end: %v\n%s", err, out)
	}
	entries, err := os.ReadDir(dir)
	must(t, err)
	all := scores{}
	for _, e := range entries {
		m := resultDir.FindStringSubmatch(e.Name())
		if m == nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name(), "checks.json"))
		if err != nil { // a scenario that broke off
			all[m[1]] = score{failed: 1, why: []string{"it did not come to an end"}}
			continue
		}
		var checks []struct{ ID, Status, ErrorMessage string }
		must(t, json.Unmarshal(text, &checks))
		s := score{ok: map[string]int{}, bad: map[string]bool{}}
		for _, c := range checks {
			switch c.Status {
			case "SUCCESS":
				s.passed++
				s.ok[c.ID]++
			case "FAILURE":
				s.failed++
				s.bad[c.ID] = true
				s.why = append(s.why, fmt.Sprintf("%s: %.300s", c.ID, c.ErrorMessage))
			}
		}
		all[m[1]] = s
	}
	if len(all) == 0 {
		t.Fatalf("the suite ran no scenario: %s", out)
	}
	return all
}

// compare holds what a server scores behind /mcp against what it scores directly.
func compare(t *testing.T, direct, behind scores, expected baseline) {
	t.Helper()
	var same, total, failing int
	for name, d := range direct {
		b, ran := behind[name]
		total++
		if d.failed > 0 {
			failing++
		}
		// A scenario that breaks off early has few failures: what counts is what passed, and whether all did.
		worse := !ran || b.failed > 0 && (d.failed == 0 || b.passed < d.passed)
		switch {
		case worse && expected[name] == "":
			t.Errorf("%s: directly %d passed, %d failed; behind /mcp %d passed, %d failed: %s", name, d.passed, d.failed, b.passed, b.failed, strings.Join(b.why, "; "))
		case !worse && expected[name] != "":
			t.Errorf("%s: passes; it is to go from the baseline", name)
		case !worse:
			same++
			compareChecks(t, name, d, b, expected)
		}
	}
	for name := range expected {
		scenario, check, _ := strings.Cut(name, ": ")
		if d, ok := direct[scenario]; !ok || check != "" && d.ok[check] == 0 {
			t.Errorf("%s: in the baseline, but not in the suite", name)
		}
	}
	t.Logf("%d scenarios: %d at least as good behind /mcp as directly, %d expected to be worse; %d fail directly too", total, same, total-same, failing)
}

// compareChecks holds the checks of one scenario against each other: what passes directly passes behind
// /mcp, and is neither left out nor a warning.
func compareChecks(t *testing.T, scenario string, d, b score, expected baseline) {
	t.Helper()
	for check, times := range d.ok {
		name := scenario + ": " + check
		switch less := b.ok[check] < times; {
		case less && expected[name] == "":
			t.Errorf("%s: passes %d times directly, %d behind /mcp", name, times, b.ok[check])
		case !less && expected[name] != "":
			t.Errorf("%s: passes; it is to go from the baseline", name)
		}
	}
}

var passesFile sync.Mutex

// hold holds the checks that have passed behind /mcp, scenario by scenario, whatever the reference server scores by
// itself: one that speaks an older revision fails most of a newer one, and a comparison with it holds little.
func hold(t *testing.T, run string, behind scores) {
	t.Helper()
	passesFile.Lock()
	defer passesFile.Unlock()
	const file = "testdata/conformance-passes.json"
	all := map[string]map[string][]string{}
	text, err := os.ReadFile(file)
	must(t, err)
	must(t, json.Unmarshal(text, &all))
	if *update {
		all[run] = map[string][]string{}
		for scenario, s := range behind {
			for _, check := range slices.Sorted(maps.Keys(s.ok)) {
				if !s.bad[check] {
					all[run][scenario] = append(all[run][scenario], check)
				}
			}
		}
		text, err := json.MarshalIndent(all, "", "  ")
		must(t, err)
		must(t, os.WriteFile(file, append(text, '\n'), 0o644))
		return
	}
	held := 0
	for scenario, checks := range all[run] {
		for _, check := range checks {
			if s := behind[scenario]; s.ok[check] == 0 || s.bad[check] {
				t.Errorf("%s: %s passed before, and does not now: %s", scenario, check, strings.Join(s.why, "; "))
			}
			held++
		}
	}
	if held == 0 {
		t.Errorf("nothing is known to pass in %s: go test ./internal/e2e -run TestConformance -update", run)
	}
	t.Logf("%d checks pass, as before", held)
}

// freePort returns a free port of this machine.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close() //nolint:errcheck // nothing came
	_, port, err := net.SplitHostPort(l.Addr().String())
	must(t, err)
	return port
}

// serveBeside runs a server beside ours until the test ends, and waits until it answers at url.
func serveBeside(t *testing.T, url string, env []string, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), env...)
	var log syncBuffer
	cmd.Stdout, cmd.Stderr = &log, &log
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	eventually(t, program+" serves", func() bool {
		res, err := http.Post(url, "application/json", bytes.NewReader([]byte("{}")))
		if err == nil {
			res.Body.Close() //nolint:errcheck // its answer does not matter
		}
		return err == nil
	})
}

// referenceServer builds the conformance server of the Go SDK, of the version that we use.
func referenceServer(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "everything-server")
	out, err := exec.Command("go", "build", "-o", file, "github.com/modelcontextprotocol/go-sdk/conformance/everything-server").CombinedOutput()
	if err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return file
}

// extension returns an extensions_config.json with one server.
func extension(t *testing.T, name string, config map[string]any) string {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"mcpServers": map[string]any{name: config}})
	must(t, err)
	return string(raw)
}

// TestConformanceServer: the SDK's conformance server behind /mcp scores what it scores directly, in both
// eras; directly it passes all that is scored.
func TestConformanceServer(t *testing.T) {
	t.Parallel()
	program := referenceServer(t)
	for _, revision := range first("2026-07-28", "2025-11-25") {
		t.Run(revision, func(t *testing.T) {
			port := freePort(t)
			url := "http://127.0.0.1:" + port + "/"
			serveBeside(t, url, nil, program, "-http=127.0.0.1:"+port, "-stateless="+strconv.FormatBool(revision == "2026-07-28"))
			s := start(t, options{extensions: extension(t, "suite", map[string]any{"type": "http", "url": url})})
			direct := conform(t, url, "--requirements", revision)
			for name, d := range direct {
				if d.failed > 0 && !strings.HasPrefix(name, "tasks-") { // an extension that the SDK does not have
					t.Errorf("%s: the reference server itself fails: %v", name, d.why)
				}
			}
			behind := conform(t, s.url+"/mcp/conformance/suite", "--requirements", revision)
			compare(t, direct, behind, readBaseline(t, "go-sdk "+revision))
			hold(t, "go-sdk "+revision, behind)
		})
	}
}

// TestConformanceDifferential runs the npm server "everything" behind /mcp, over its standard input. It must
// score what its own HTTP mode scores directly, seen alone and among all tools of a thread.
func TestConformanceDifferential(t *testing.T) {
	whole(t, TestConformanceServer)
	t.Parallel()
	main := npmProgram(t, "@modelcontextprotocol/server-everything/dist/index.js")
	node := npmProgram(t, "node/bin/node")
	port := freePort(t)
	url := "http://127.0.0.1:" + port + "/mcp"
	serveBeside(t, url, []string{"PORT=" + port}, node, main, "streamableHttp")
	s := start(t, options{extensions: extension(t, "everything", map[string]any{"command": node, "args": []string{main}})})
	s.acquire("all", "direct")
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		direct := conform(t, url, "--requirements", revision)
		for view, path := range map[string]string{"alone": "/mcp/one/everything", "among all": "/mcp/all"} {
			t.Run(revision+" "+view, func(t *testing.T) {
				behind := conform(t, s.url+path, "--requirements", revision)
				compare(t, direct, behind, readBaseline(t, "everything "+revision+" "+view))
				hold(t, "everything "+revision+" "+view, behind)
			})
		}
	}
}

// TestConformanceSkills: the Skills extension, with the skills of this repository, and with a plugin whose name and
// whose skill's name are those of one of them.
func TestConformanceSkills(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "csv-profile")
	for name, text := range map[string]string{
		".claude-plugin/plugin.json":     `{"name":"csv-profile"}`,
		"skills/csv-profile/SKILL.md":    "---\nname: csv-profile\ndescription: Of the plugin.\n---\nRead more.md.\n",
		"skills/csv-profile/doc/more.md": "of the plugin",
	} {
		file := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must(t, os.WriteFile(file, []byte(text), 0o644))
	}
	s := start(t, options{env: []string{"SKERRY_PLUGINS_FOLDERS=" + filepath.Dir(dir)}})
	s.cli("plugins", "install", dir)
	for _, scenario := range []string{"sep-2640-skills-directory", "sep-2640-skills-enumeration", "sep-2640-skills-manifest"} {
		for name, sc := range conform(t, s.url+"/mcp/skills", "--scenario", scenario) {
			t.Logf("%s: %d passed, %d failed", name, sc.passed, sc.failed)
			if sc.failed > 0 || sc.passed == 0 {
				t.Errorf("%s: %d passed, %d failed: %v", name, sc.passed, sc.failed, sc.why)
			}
		}
	}
	read, err := s.mcpClient("/mcp/skills", nil).ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "skill://plugin@csv-profile/csv-profile/doc/more.md"})
	must(t, err)
	if len(read.Contents) != 1 || read.Contents[0].Text != "of the plugin" {
		t.Errorf("a file of the plugin's skill: %+v", read)
	}
}

// acquire starts the thread's sandbox, in a mode.
func (s *server) acquire(thread, mode string) {
	s.t.Helper()
	if a := s.do("PUT", "/api/threads/"+thread+"/sandbox", map[string]any{"mode": mode, "wait_s": 60}); a.status != 200 {
		s.t.Fatalf("acquire: %d %s", a.status, a.body)
	}
}
