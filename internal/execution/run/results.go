package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
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
	all, ok := members(e.Secret.Hide.JSON(raw))
	if !ok {
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

// members reads an object of at most maxMIMEs members. It stops behind them: eight bytes of text make a member, which
// takes ten times as much memory.
func members(raw []byte) (map[string]json.RawMessage, bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	all := map[string]json.RawMessage{}
	for n := 0; d.More(); n++ {
		key, err := d.Token()
		name, ok := key.(string)
		if err != nil || !ok || n == maxMIMEs {
			return nil, false
		}
		var data json.RawMessage
		if d.Decode(&data) != nil {
			return nil, false
		}
		all[name] = data
	}
	_, err := d.Token()
	return all, err == nil && ended(d)
}

// ended reports whether nothing comes behind the value that was read.
func ended(d *json.Decoder) bool {
	_, err := d.Token()
	return errors.Is(err, io.EOF)
}

// listed reads the first maxMIMEs elements of a list; nil when it is none.
func listed(raw []byte) []sandbox.KeptResult {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return nil
	}
	var files []sandbox.KeptResult
	for d.More() && len(files) < maxMIMEs {
		var f sandbox.KeptResult
		if d.Decode(&f) != nil {
			return nil
		}
		files = append(files, f)
	}
	return files
}

var mimeType = regexp.MustCompile(`^[A-Za-z]+/[A-Za-z0-9][A-Za-z0-9.+_-]*$`)

func isMIME(s string) bool { return len(s) <= maxMIME && mimeType.MatchString(s) }

// keptResults checks the list of files that hold what was too large: they are the exec's own, or left out.
func (x contextResults) keptResults(ctx context.Context, e *execution.Exec, uid int, data json.RawMessage) json.RawMessage {
	var good []sandbox.KeptResult
	for _, f := range listed(data) {
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
