package run

import (
	"context"
	"encoding/json"
	"path"
	"regexp"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/execution"
	"github.com/skerry-sandbox/skerry/internal/execution/contexts"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// contextResults are what runs in contexts come to.
type contextResults struct{ *Runner }

// settleContext adds to the result of an exec what its context says, and frees that. exit is nil when the
// sandbox is lost.
func (x contextResults) settleContext(inst *instance.Instance, e *execution.Exec, exit *sandboxv1.Exit, res *sandbox.Result) {
	lost := contexts.LostBy(exit, res)
	out := x.o.Contexts.End(e.Context, lost)
	if lost == "" && res.Status == sandbox.StatusTimeout {
		out.Detail = "it was interrupted at the deadline; its variables are kept"
	}
	res.Context = &out
	ctx, cancel := context.WithTimeout(x.ctx, hideTimeout)
	defer cancel()
	results := []sandbox.RichResult{}
	for _, raw := range exit.GetResults() {
		if rich := x.richResult(ctx, e, inst.UID, raw); len(rich) > 0 {
			results = append(results, rich)
			e.CountResult(raw)
		}
	}
	res.Results, res.ResultsLeftOut = &results, int(exit.GetResultsLeftOut())
	if res.ResultsLeftOut > 0 {
		kept := spillDir(e.ID) + "/results.jsonl"
		x.hideSpilled(ctx, e, inst.UID, &kept)
	}
}

const (
	maxMIME  = 200
	maxMIMEs = 32 // of one result
)

// richResult reads what the code's own process says that it displayed: nothing of it is believed. What
// is no MIME type with fit data is left out.
func (x contextResults) richResult(ctx context.Context, e *execution.Exec, uid int, raw []byte) sandbox.RichResult {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(e.Secret.Hide.JSON(raw), &all); err != nil || len(all) > maxMIMEs {
		return nil
	}
	rich := sandbox.RichResult{}
	for mime, data := range all {
		switch {
		case !isMIME(mime):
		case mime == sandbox.ResultFilesType:
			if files := x.keptResults(ctx, e, uid, data); files != nil {
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
func (x contextResults) keptResults(ctx context.Context, e *execution.Exec, uid int, data json.RawMessage) json.RawMessage {
	var files, good []sandbox.KeptResult
	if json.Unmarshal(data, &files) != nil {
		return nil
	}
	for _, f := range files[:min(len(files), maxMIMEs)] {
		if path.Dir(f.Path) != spillDir(e.ID) || path.Clean(f.Path) != f.Path || !isMIME(f.MIME) {
			continue
		}
		err := x.o.Files.With(e.Thread, nil, func(fs *paths.FS) error {
			info, err := fs.Stat(f.Path)
			f.Bytes = info.Bytes
			return err
		})
		if err != nil || x.hideSpilled(ctx, e, uid, &f.Path) == nil {
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
