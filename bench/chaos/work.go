package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// work is what the threads do, and what they were told.
type work struct {
	*fleet
	names []string // of the threads

	mu     sync.Mutex
	counts map[string]int                 // "what: how it ended"
	execs  map[string]string              // id of each exec that a client knows -> its thread
	told   map[string]string              // id -> the end that a client was told
	files  map[string]map[string][32]byte // thread -> path -> digest of what was acknowledged
	tokens map[string][]string            // thread -> what an exec that ended well has written
	calls  int                            // of tools of packs
	mixed  int                            // of these with the result of another one
}

func newWork(f *fleet) *work {
	w := &work{
		fleet: f, counts: map[string]int{}, execs: map[string]string{}, told: map[string]string{},
		files: map[string]map[string][32]byte{}, tokens: map[string][]string{},
	}
	for i := range f.threads {
		w.names = append(w.names, fmt.Sprintf("chaos-%02d", i))
	}
	return w
}

// run has all threads work until ctx ends, and waits for the end of what they have begun.
func (w *work) run(ctx context.Context) {
	var wg sync.WaitGroup
	for i, name := range w.names {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(w.seed, uint64(i)+10)) //nolint:gosec // repeatable on purpose
			for n := 0; ctx.Err() == nil; n++ {
				w.one(context.WithoutCancel(ctx), r, name, n)
				wait(ctx, time.Duration(r.Int64N(int64(400*time.Millisecond))))
			}
		})
	}
	wg.Wait()
}

func (w *work) count(what, how string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what+": "+how]++
}

// any returns a server, running or not: clients do not know.
func (w *work) any(r *rand.Rand) *process { return w.servers[r.IntN(len(w.servers))] }

func (w *work) one(ctx context.Context, r *rand.Rand, thread string, n int) {
	token := fmt.Sprintf("%s-%d", thread, n)
	if w.packs > 0 {
		w.callPacks(ctx, r, thread, token)
	}
	switch k := r.IntN(20); {
	case k < 6:
		w.exec(ctx, r, "short exec", thread, token, fmt.Sprintf("echo %s >> /mnt/user-data/workspace/log && sync && echo %s", token, token), false)
	case k < 9:
		command := fmt.Sprintf("for i in 1 2 3 4 5; do echo $i; sleep 0.%d; done; echo %s >> /mnt/user-data/workspace/log", 1+r.IntN(5), token)
		w.exec(ctx, r, "stream", thread, token, command, true)
	case k < 12:
		w.background(ctx, r, thread, token)
	case k < 14:
		w.code(ctx, r, thread)
	case k < 19:
		w.file(ctx, r, thread, n)
	default:
		status, text, err := w.call(ctx, w.any(r), http.MethodDelete, "/api/threads/"+thread+"/sandbox", nil)
		w.count("release", outcome(status, text, err))
	}
}

// outcome puts an answer in a word or two.
func outcome(status int, text []byte, err error) string {
	var p struct{ Code string }
	switch {
	case err != nil:
		return "connection broke"
	case status < 300:
		return "ok"
	case json.Unmarshal(text, &p) == nil && p.Code != "":
		return p.Code
	}
	return fmt.Sprint(status)
}

// result is that of an exec.
type result struct {
	ExecID   string `json:"exec_id"`
	Status   string `json:"status"`
	ExitCode *int   `json:"exit_code"`
}

// learn notes what a client was told of an exec.
func (w *work) learn(what, thread, token string, res result) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.execs[res.ExecID] = thread
	if res.Status == "running" {
		return
	}
	w.told[res.ExecID] = res.Status
	w.counts[what+": "+res.Status]++
	if token != "" && res.Status == "exited" && res.ExitCode != nil && *res.ExitCode == 0 {
		w.tokens[thread] = append(w.tokens[thread], token)
	}
}

func (w *work) exec(ctx context.Context, r *rand.Rand, what, thread, token, command string, stream bool) {
	body, err := json.Marshal(map[string]any{"command": command, "timeout_s": 30})
	if err != nil {
		panic(err) // of strings and numbers
	}
	var headers []string
	if stream {
		headers = []string{"Accept: text/event-stream"}
	}
	status, text, err := w.call(ctx, w.any(r), http.MethodPost, "/api/threads/"+thread+"/exec", body, headers...)
	if err == nil && status == http.StatusOK && stream {
		text, err = lastEvent(text)
	}
	var res result
	if err != nil || status != http.StatusOK || json.Unmarshal(text, &res) != nil || res.ExecID == "" {
		w.count(what, outcome(max(status, 300), text, err))
		return
	}
	w.learn(what, thread, token, res)
}

var errCut = errors.New("the stream was cut")

// lastEvent returns the result in the exit of a stream.
func lastEvent(text []byte) ([]byte, error) {
	_, exit, ok := strings.Cut(string(text), "event: exit\n")
	if !ok {
		return nil, errCut
	}
	for line := range strings.Lines(exit) {
		if data, ok := strings.CutPrefix(line, "data: "); ok && strings.HasSuffix(line, "\n") {
			return []byte(strings.TrimSpace(data)), nil
		}
	}
	return nil, errCut
}

// background starts an exec and asks any server for its end.
func (w *work) background(ctx context.Context, r *rand.Rand, thread, token string) {
	const what = "background"
	command := fmt.Sprintf("sleep %d; echo %s >> /mnt/user-data/workspace/log", 1+r.IntN(8), token)
	body, err := json.Marshal(map[string]any{"command": command, "timeout_s": 60, "background": true})
	if err != nil {
		panic(err) // of strings and numbers
	}
	status, text, err := w.call(ctx, w.any(r), http.MethodPost, "/api/threads/"+thread+"/exec", body)
	var res result
	if err != nil || status != http.StatusOK || json.Unmarshal(text, &res) != nil || res.ExecID == "" {
		w.count(what, outcome(max(status, 300), text, err))
		return
	}
	id := res.ExecID
	w.learn(what, thread, token, res)
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(500 * time.Millisecond) {
		status, text, err = w.call(ctx, w.any(r), http.MethodGet, "/api/threads/"+thread+"/execs/"+id, nil)
		switch {
		case err == nil && status == http.StatusNotFound:
			w.count(what, "end is in the audit log only") // the server that knew it has ended
			return
		case err != nil || status != http.StatusOK || json.Unmarshal(text, &res) != nil:
			continue // asked again
		case res.Status != "running":
			w.learn(what, thread, token, res)
			return
		}
	}
	w.count(what, "end not told within two minutes")
}

func (w *work) code(ctx context.Context, r *rand.Rand, thread string) {
	body := []byte(`{"language":"python","code":"print(sum(range(1000)))","timeout":20}`)
	status, text, err := w.call(ctx, w.any(r), http.MethodPost, "/api/threads/"+thread+"/execute_code", body)
	var res result
	if err != nil || status != http.StatusOK || json.Unmarshal(text, &res) != nil || res.ExecID == "" {
		w.count("code", outcome(max(status, 300), text, err))
		return
	}
	w.learn("code", thread, "", res)
}

// file writes a file of known content, through a server that need not run the thread.
func (w *work) file(ctx context.Context, r *rand.Rand, thread string, n int) {
	content := make([]byte, 1+r.IntN(64<<10))
	for i := range content {
		content[i] = byte(r.Uint32()) //nolint:gosec // any byte will do
	}
	path := fmt.Sprintf("/mnt/user-data/uploads/f%d", n)
	status, text, err := w.call(ctx, w.any(r), http.MethodPut, "/api/threads/"+thread+"/files/content?path="+path, content, "Content-Type: application/octet-stream")
	w.count("file", outcome(status, text, err))
	if err != nil || status >= 300 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.files[thread] == nil {
		w.files[thread] = map[string][32]byte{}
	}
	w.files[thread][path] = sha256.Sum256(content)
}

func (w *work) print() {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Println("what clients were told:")
	for _, key := range slices.Sorted(maps.Keys(w.counts)) {
		fmt.Printf("  %-45s %6d\n", key, w.counts[key])
	}
}
