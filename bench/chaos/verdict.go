package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/audit/verify"
)

// settleTime bounds the wait for what has an end of its own: execs, the shipping of records, goroutines of idle
// connections.
const settleTime = 2 * time.Minute

// verdict is the look at what is there in the end.
type verdict struct {
	*fleet
	work     *work
	before   []int // goroutines
	problems []string

	attempts, results, execs, known, files, bytes, tokens int
	byAudit                                               int // ends of known execs that only the audit log tells
	records                                               uint64
	after                                                 []int
}

func (v *verdict) wrong(format string, args ...any) {
	const most = 50
	if len(v.problems) < most {
		v.problems = append(v.problems, fmt.Sprintf(format, args...))
	}
}

func (v *verdict) judge(ctx context.Context) []string {
	v.workspaces(ctx)
	for _, name := range v.work.names {
		v.eventually("thread "+name+" is deleted", func() string {
			status, text, err := v.call(ctx, v.servers[0], http.MethodDelete, "/api/threads/"+name, nil)
			if err == nil && (status == http.StatusNoContent || status == http.StatusNotFound) {
				return ""
			}
			return outcome(status, text, err)
		})
	}
	v.ends()
	if v.work.mixed > 0 {
		v.wrong("%d calls of tools got the result of another call", v.work.mixed)
	}
	v.eventually("nothing of a thread is left", func() string { return v.leftOver() })
	for _, p := range v.programs {
		if err := p.stop(); err != nil {
			v.wrong("%v", err)
		}
	}
	v.eventually("goroutines end", func() string { return v.leaks(ctx) })
	for _, s := range v.servers {
		if err := s.stop(); err != nil {
			v.wrong("%v", err)
		}
	}
	v.eventually("nothing of a server is left", func() string { return v.leftOnMachine() })
	return v.problems
}

// eventually looks until there is nothing wrong.
func (v *verdict) eventually(what string, look func() string) {
	for deadline := time.Now().Add(settleTime); ; time.Sleep(500 * time.Millisecond) {
		found := look()
		if found == "" {
			return
		}
		if time.Now().After(deadline) {
			v.wrong("not so: %s: %s", what, found)
			return
		}
	}
}

// workspaces looks whether each byte is there that was acknowledged.
func (v *verdict) workspaces(ctx context.Context) {
	read := func(server int, thread, path string) []byte {
		var content []byte
		v.eventually(thread+path+" is read", func() string {
			status, text, err := v.call(ctx, v.servers[server%2], http.MethodGet, "/api/threads/"+thread+"/files/content?path="+path, nil)
			if err != nil || status != http.StatusOK {
				return outcome(status, text, err)
			}
			content = text
			return ""
		})
		return content
	}
	n := 0
	for thread, files := range v.work.files {
		for path, want := range files {
			n++
			content := read(n, thread, path)
			v.files++
			v.bytes += len(content)
			if sha256.Sum256(content) != want {
				v.wrong("%s%s has %d other bytes", thread, path, len(content))
			}
		}
	}
	for thread, tokens := range v.work.tokens {
		log := strings.Fields(string(read(len(tokens), thread, "/mnt/user-data/workspace/log")))
		there := map[string]bool{}
		for _, t := range log {
			there[t] = true
		}
		for _, t := range tokens {
			v.tokens++
			if !there[t] {
				v.wrong("%s: what an exec wrote that ended well is not in its file: %s", thread, t)
			}
		}
	}
}

// ends looks whether each exec that was accepted has exactly one end, in the audit log on disk and by the API.
func (v *verdict) ends() {
	var ends map[string][]string
	v.eventually("each attempt has one result", func() string {
		var bad string
		ends, bad = v.auditLog()
		return bad
	})
	res, err := verify.Verify(context.Background(), filepath.Join(v.data, "audit"), verify.Options{})
	v.records = res.Records
	if err != nil || !res.OK {
		v.wrong("the audit log: %+v, %v", res.FirstBad, err)
	}
	for id, thread := range v.work.execs {
		v.known++
		if len(ends[id]) != 1 {
			v.wrong("the exec %s of %s, which a client knows, has the ends %q", id, thread, ends[id])
			continue
		}
		told, ok := v.work.told[id]
		if ok && told != ends[id][0] {
			v.wrong("the exec %s ended as %s, and a client was told %s", id, ends[id][0], told)
		}
		if !ok {
			v.byAudit++
		}
	}
}

// auditLog reads all records. ends are those of execs, by exec; bad says what an attempt lacks, or has twice.
func (v *verdict) auditLog() (ends map[string][]string, bad string) {
	segments, err := filepath.Glob(filepath.Join(v.data, "audit", "w*", "*.jsonl"))
	if err != nil || len(segments) == 0 {
		return nil, fmt.Sprintf("no audit log: %v", err)
	}
	open := map[string]audit.Record{}
	results := map[string]int{}
	ends = map[string][]string{}
	for _, path := range segments {
		if err := eachRecord(path, func(r audit.Record) {
			switch {
			case r.Phase == audit.PhaseAttempt:
				open[r.ID] = r
			case r.Parent != "" && (r.Action == audit.ActionExec || r.Action == audit.ActionCode):
				results[r.Parent]++
				ends[r.Exec] = append(ends[r.Exec], r.Outcome)
			case r.Parent != "":
				results[r.Parent]++
			}
		}); err != nil {
			return nil, err.Error()
		}
	}
	v.attempts, v.results, v.execs = len(open), 0, 0
	for id, a := range open {
		n := results[id]
		v.results += n
		if a.Action == audit.ActionExec || a.Action == audit.ActionCode {
			v.execs++
			n = len(ends[a.Exec])
		}
		if n != 1 {
			bad = fmt.Sprintf("%s %s of %s by %s has %d results", a.Action, a.ID, a.Thread, a.Writer, n)
		}
	}
	return ends, bad
}

func eachRecord(path string, see func(audit.Record)) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was read
	for in := bufio.NewReaderSize(f, 64<<10); ; {
		line, err := in.ReadBytes('\n')
		if err == io.EOF { //nolint:errorlint // as it comes
			return nil
		}
		if err != nil {
			return err
		}
		var r audit.Record
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(path), err)
		}
		see(r)
	}
}

// leftOver names what is left of threads while the servers run: claims, run folders, leases, containers.
func (v *verdict) leftOver() string {
	for what, pattern := range map[string]string{
		"claim": "run/claims/*", "run folder": "run/skerry-*", "bundle": "oci/bundles/*", "container": "oci/runc/skerry-*", "file of /etc": "containerd/etc/*",
		"MCP folder": "mcp-run/*", "thread": "tenants/*/users/*/threads/[^.]*",
	} {
		found, err := filepath.Glob(filepath.Join(v.data, pattern))
		if err != nil || len(found) > 0 {
			return fmt.Sprintf("%d of %s left, such as %v (%v)", len(found), what, found[:min(len(found), 1)], err)
		}
	}
	if pids := v.inits(); len(pids) > 0 {
		return fmt.Sprintf("sandboxes run: pids %v", pids)
	}
	for _, what := range []string{"lease", "sandbox"} {
		if keys, err := v.redisKeys("skerry:*:" + what + ":*"); err != nil || keys != "*0" {
			return fmt.Sprintf("Redis has a %s: %s, %v", what, keys, err)
		}
	}
	return ""
}

// redisKeys returns the first line of Redis's answer: the number of keys.
func (v *verdict) redisKeys(pattern string) (string, error) {
	c, err := net.DialTimeout("tcp", v.redisAt, 5*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close() //nolint:errcheck // it was asked
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(c, "KEYS %s\r\n", pattern); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line), err
}

// moreGoroutines is how many more a server may have than a new one: workers that the libraries keep.
const moreGoroutines = 20

func (v *verdict) leaks(ctx context.Context) string {
	after, err := v.goroutines(ctx)
	if err != nil {
		return err.Error()
	}
	v.after = after
	most := slices.Max(v.before)
	for i, n := range after {
		if n > most+moreGoroutines {
			return fmt.Sprintf("server %d has %d goroutines, began with %d", i+1, n, v.before[i])
		}
	}
	return ""
}

// leftOnMachine names what is left once the servers have ended.
func (v *verdict) leftOnMachine() string {
	for what, file := range map[string]string{"mount": "/proc/self/mountinfo", "socket": "/proc/net/unix"} {
		text, err := os.ReadFile(file)
		if err != nil {
			return err.Error()
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, v.data) {
				return "a " + what + ": " + line
			}
		}
	}
	if pids := v.processes(func(string) bool { return true }); len(pids) > 0 {
		return fmt.Sprintf("processes %v", pids)
	}
	ids := map[string]bool{}
	for _, r := range v.sandboxes() {
		ids[r] = true
	}
	var left string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && ids[d.Name()] {
			left = "a cgroup: " + path
		}
		return nil // what vanishes meanwhile is not left
	})
	if err != nil {
		return err.Error()
	}
	return left
}

// sandboxes are the ids of all that the audit log knows.
func (v *verdict) sandboxes() []string {
	segments, err := filepath.Glob(filepath.Join(v.data, "audit", "w*", "*.jsonl"))
	if err != nil {
		return nil
	}
	var ids []string
	for _, path := range segments {
		if err := eachRecord(path, func(r audit.Record) {
			if r.Action == audit.ActionSandboxCreate {
				ids = append(ids, r.Sandbox)
			}
		}); err != nil {
			v.wrong("%v", err)
		}
	}
	return ids
}

func (v *verdict) print() {
	fmt.Println("what was looked at:")
	for _, line := range []struct {
		what string
		n    any
	}{
		{"records of the audit log, all intact", v.records},
		{"attempts in it", v.attempts}, {"of these execs and code", v.execs}, {"results of attempts", v.results},
		{"execs that a client knows by id", v.known}, {"of these with an end in the audit log only", v.byAudit},
		{"calls of tools of packs", v.work.calls}, {"files read back", v.files}, {"bytes in them", v.bytes}, {"lines that execs wrote", v.tokens},
		{"goroutines of the servers, before", v.before}, {"and after", v.after},
	} {
		fmt.Printf("  %-45s %v\n", line.what, line.n)
	}
}
