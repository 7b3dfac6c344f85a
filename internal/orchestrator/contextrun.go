package orchestrator

import (
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// contextRun is the claim of one exec on a context.
type contextRun struct {
	cc   *codeContext
	life int
	inst *instance.Instance
}

// acquireContext makes a context busy with an exec that is about to start. Errors: NotFound; Conflict: it is
// lost, starting, or runs another exec; Invalid: another language is asked for.
func (r *Orchestrator) acquireContext(t sandbox.Thread, code *sandbox.Code) (*contextRun, error) {
	g := &r.contexts
	g.mu.Lock()
	defer g.mu.Unlock()
	cc, err := g.get(t, code.ContextID)
	if err != nil {
		return nil, err
	}
	if code.Language != "" && code.Language != cc.language {
		return nil, sandbox.Errorf(sandbox.Invalid, "language: context %s is %s", cc.id, cc.language)
	}
	if err := cc.unfit(); err != nil {
		return nil, err
	}
	code.Language = cc.language
	cc.state, cc.free = sandbox.ContextBusy, make(chan struct{})
	return &contextRun{cc: cc, life: cc.life, inst: cc.inst}, nil
}

// begin says which exec it is that the context runs.
func (r *Orchestrator) beginRun(cr *contextRun, execID string) {
	r.contexts.mu.Lock()
	defer r.contexts.mu.Unlock()
	if cr.cc.life == cr.life {
		cr.cc.run = execID
		cr.cc.runs++
	}
}

// endRun frees a context after a run, or after one that did not come about. lost is why it no longer exists, or
// "".
func (r *Orchestrator) endRun(cr *contextRun, lost string) sandbox.ContextOutcome {
	r.contexts.mu.Lock()
	defer r.contexts.mu.Unlock()
	cc := cr.cc
	out := sandbox.ContextOutcome{ContextID: cc.id, State: sandbox.ContextIdle}
	switch {
	case lost != "":
		out.State, out.Detail = sandbox.ContextLost, lost+whatToDo
		if cc.life == cr.life {
			cc.lose(lost)
		}
	case cc.life == cr.life:
		cc.state, cc.run, cc.lastUsed = sandbox.ContextIdle, "", time.Now().UTC()
		cc.release()
	}
	return out
}

// settleContext adds to the result of an exec what its context says, and frees that. exit is nil when the
// sandbox is lost.
func (r *Orchestrator) settleContext(inst *instance.Instance, e *execution, exit *sandboxv1.Exit, res *sandbox.Result) {
	lost := ""
	switch {
	case exit == nil:
		lost = goneWithSandbox
	case !exit.GetContextLost():
	case exit.GetStatus() == sandboxv1.Exit_STATUS_FAILED_TO_START:
		lost = goneByItself
	case res.Status == sandbox.StatusTimeout:
		lost = "it did not stop at the deadline, so it was ended"
	case res.Status == sandbox.StatusOOM:
		lost = "it ran out of memory"
	case res.Status == sandbox.StatusKilled:
		lost = "it was ended"
	case res.ExitCode != nil:
		lost = fmt.Sprintf("its interpreter ended with code %d", *res.ExitCode)
	default:
		lost = goneByItself
	}
	out := r.endRun(e.context, lost)
	if lost == "" && res.Status == sandbox.StatusTimeout {
		out.Detail = "it was interrupted at the deadline; its variables are kept"
	}
	res.Context = &out
	results := []sandbox.RichResult{}
	for _, raw := range exit.GetResults() {
		if rich := r.richResult(e, inst.UID, raw); len(rich) > 0 {
			results = append(results, rich)
			e.bytes += int64(len(raw))
		}
	}
	res.Results, res.ResultsLeftOut = &results, int(exit.GetResultsLeftOut())
	if res.ResultsLeftOut > 0 {
		kept := spillDir(e.id) + "/results.jsonl"
		r.hideSpilled(e, inst.UID, &kept)
	}
}

const (
	maxMIME  = 200
	maxMIMEs = 32 // of one result
)

// richResult reads what the code's own process says that it displayed: nothing of it is believed. What
// is no MIME type with fit data is left out.
func (r *Orchestrator) richResult(e *execution, uid int, raw []byte) sandbox.RichResult {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(e.secret.hide.JSON(raw), &all); err != nil || len(all) > maxMIMEs {
		return nil
	}
	rich := sandbox.RichResult{}
	for mime, data := range all {
		switch {
		case !isMIME(mime):
		case mime == sandbox.ResultFilesType:
			if files := r.keptResults(e, uid, data); files != nil {
				rich[mime] = files
			}
		case mime == "application/json" || strings.HasSuffix(mime, "+json"):
			rich[mime] = data
		default:
			var text string
			if json.Unmarshal(data, &text) == nil {
				rich[mime] = data
			}
		}
	}
	return rich
}

var mimeType = regexp.MustCompile(`^[A-Za-z]+/[A-Za-z0-9][A-Za-z0-9.+_-]*$`)

func isMIME(s string) bool { return len(s) <= maxMIME && mimeType.MatchString(s) }

// keptResults checks the list of files that hold what was too large: they are the exec's own, or left out.
func (r *Orchestrator) keptResults(e *execution, uid int, data json.RawMessage) json.RawMessage {
	var files, good []sandbox.KeptResult
	if json.Unmarshal(data, &files) != nil {
		return nil
	}
	for _, f := range files[:min(len(files), maxMIMEs)] {
		if path.Dir(f.Path) != spillDir(e.id) || path.Clean(f.Path) != f.Path || !isMIME(f.MIME) {
			continue
		}
		err := r.withFiles(e.thread, nil, func(fs *paths.FS) error {
			info, err := fs.Stat(f.Path)
			f.Bytes = info.Bytes
			return err
		})
		if err != nil || r.hideSpilled(e, uid, &f.Path) == nil {
			continue
		}
		good = append(good, f)
	}
	if len(good) == 0 {
		return nil
	}
	list, err := json.Marshal(good)
	if err != nil {
		return nil
	}
	return list
}
