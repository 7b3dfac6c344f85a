package librechat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/api/codeoutput"
	"github.com/skerry-sandbox/skerry/internal/api/inprocess"
	"github.com/skerry-sandbox/skerry/internal/platform/jsonedit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// maxBody bounds the JSON of a request, and maxValues what it is decoded to.
	maxBody   = 8 << 20
	maxValues = 10_000
	// maxFiles is how many files a request may name or bring, as in LibreChat's own service.
	maxFiles = 200
	// runTime is how long code may run, in seconds, and maxOutput what is kept of its output, in characters.
	runTime   = 120
	maxOutput = 200_000
	// startWait is how long a run waits for its sandbox, in seconds.
	startWait = 60
)

// execBody is the body of POST /exec. LibreChat adds fields from version to version, so others are passed over.
type execBody struct {
	Lang    string    `json:"lang"`
	Code    string    `json:"code"`
	Args    []string  `json:"args"`
	Session string    `json:"session_id"`
	Hint    string    `json:"runtime_session_hint"` // the conversation
	Files   []fileRef `json:"files"`
}

// fileRef is a file that LibreChat knows.
type fileRef struct {
	ID      string `json:"id"`
	Session string `json:"storage_session_id"`
	Older   string `json:"session_id"` // what Session was called before
	Name    string `json:"name"`
}

func (f fileRef) session() string {
	if f.Session != "" {
		return f.Session
	}
	return f.Older
}

// languages are those that run, by LibreChat's names of them.
var languages = map[string]string{"py": "python", "python": "python", "js": "javascript", "ts": "typescript", "bash": "bash"}

func (b *execBody) check() error {
	switch {
	case languages[b.Lang] == "":
		return sandbox.Errorf(sandbox.Invalid, "lang: %.40q does not run here; %s do", b.Lang, strings.Join(slices.Sorted(maps.Keys(languages)), ", "))
	case b.Code == "":
		return sandbox.Errorf(sandbox.Invalid, "code: is missing")
	case len(b.Args) > 0 && interpreters[b.Lang] == nil:
		return sandbox.Errorf(sandbox.Invalid, "args: work with bash and py, not with %s", b.Lang)
	case b.Session != "" && !validID.MatchString(b.Session):
		return sandbox.Errorf(sandbox.Invalid, "session_id: want %d of the characters A-Z a-z 0-9 _ -", idLength)
	case len(b.Hint) > 1024:
		return sandbox.Errorf(sandbox.Invalid, "runtime_session_hint: has more than 1024 bytes")
	case len(b.Files) > maxFiles:
		return sandbox.Errorf(sandbox.Invalid, "files: at most %d", maxFiles)
	}
	for i, f := range b.Files {
		if !validID.MatchString(f.session()) || !validID.MatchString(f.ID) {
			return sandbox.Errorf(sandbox.Invalid, "files[%d]: id and storage_session_id are %d of the characters A-Z a-z 0-9 _ -", i, idLength)
		}
	}
	return nil
}

// session is the one that the code runs in: that of the conversation, the one that is named, the one that has most of the
// files, or a new one.
func (b *execBody) session(secret string) string {
	if b.Hint != "" {
		return sessionOf(b.Hint, secret)
	}
	if b.Session != "" {
		return b.Session
	}
	has := map[string]int{}
	most := ""
	for _, f := range b.Files {
		s := f.session()
		has[s]++
		if most == "" || has[s] > has[most] {
			most = s
		}
	}
	if most != "" {
		return most
	}
	return newSession()
}

// interpreters run code with arguments.
var interpreters = map[string][]string{"py": {"python3", "-c"}, "python": {"python3", "-c"}, "bash": {"bash", "-c"}}

// run is the request that runs the code.
func (b *execBody) run(thread string) inprocess.Request {
	if len(b.Args) == 0 {
		return inprocess.Request{Method: http.MethodPost, Path: "/api/threads/" + thread + "/execute_code", Body: map[string]any{
			"language": languages[b.Lang], "code": b.Code, "timeout": runTime, "max_output_chars": maxOutput,
		}}
	}
	argv := append(slices.Clone(interpreters[b.Lang]), b.Code)
	if b.Lang == "bash" {
		argv = append(argv, "bash") // $0
	}
	return inprocess.Request{Method: http.MethodPost, Path: "/api/threads/" + thread + "/exec", Body: map[string]any{
		"argv": append(argv, b.Args...), "timeout_s": runTime, "max_output_bytes": maxOutput, "report_files": true,
	}}
}

// ran is the answer to POST /exec.
type ran struct {
	Session string    `json:"session_id"`
	Stdout  string    `json:"stdout"`
	Stderr  string    `json:"stderr"`
	Files   []outFile `json:"files"`
	Code    *int      `json:"code"`
	Status  string    `json:"status,omitempty"`
	Millis  int64     `json:"wall_time"`
}

// outFile is a file that code wrote.
type outFile struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Session string `json:"storage_session_id"`
	Older   string `json:"session_id"`
	Size    int64  `json:"size"`
}

func (a *adapter) exec(c *call) error {
	var b execBody
	if err := c.body(&b); err != nil {
		return err
	}
	if err := b.check(); err != nil {
		return err
	}
	thread, err := a.ready(c, &b)
	if err != nil {
		return err
	}
	var r sandbox.Result
	if err := c.into(b.run(thread), &r); err != nil {
		return err
	}
	inprocess.Write(c.W, http.StatusOK, answerOf(thread, r))
	return nil
}

// ready returns the thread that code runs in, with the files that it names.
func (a *adapter) ready(c *call, b *execBody) (thread string, err error) {
	thread = b.session(c.secret)
	if err := c.bring(thread, b.Files); err != nil {
		return "", err
	}
	if a.Template != "" {
		start := inprocess.Request{Method: http.MethodPut, Path: "/api/threads/" + thread + "/sandbox", Body: map[string]any{"template": a.Template, "wait_s": startWait}}
		if _, err := c.do(start); err != nil {
			return "", err
		}
	}
	return thread, nil
}

// answerOf is what LibreChat is told of code that has ended.
func answerOf(thread string, r sandbox.Result) ran {
	out := ran{Session: thread, Files: []outFile{}, Code: r.ExitCode, Millis: r.DurationMillis}
	out.Stdout, out.Stderr = texts(r)
	if r.Status != sandbox.StatusExited {
		out.Status = string(r.Status)
	}
	for _, f := range r.Files {
		name, ok := strings.CutPrefix(f.Path, sandbox.WorkspaceDir+"/")
		if !ok || f.Change == "deleted" {
			continue
		}
		out.Files = append(out.Files, outFile{ID: fileID(name), Name: name, Session: thread, Older: thread, Size: f.Bytes})
	}
	return out
}

// texts returns the output of a run. LibreChat shows a model only the two streams, so what else is to be known is said at the end
// of the second.
func texts(r sandbox.Result) (stdout, stderr string) {
	stdout, stderr = codeoutput.Readable(r.Stdout, r.Encoding), codeoutput.Readable(r.Stderr, r.Encoding)
	note := func(format string, args ...any) {
		if stderr != "" && !strings.HasSuffix(stderr, "\n") {
			stderr += "\n"
		}
		stderr += fmt.Sprintf(format, args...) + "\n"
	}
	switch {
	case r.Status != sandbox.StatusExited && r.Detail != "":
		note("The run did not end by itself: %s (%s).", r.Status, r.Detail)
	case r.Status != sandbox.StatusExited:
		note("The run did not end by itself: %s.", r.Status)
	case r.ExitCode != nil && *r.ExitCode != 0 && stderr == "":
		note("The exit code is %d.", *r.ExitCode)
	}
	if r.Truncated {
		note("The output is cut.")
	}
	if r.FilesTruncated {
		note("Not all files that changed are listed.")
	}
	return stdout, stderr
}

// bring copies the files that another session has to the thread of this one. Of its own files it wants only that the thread is
// still there: code may have deleted one.
func (c *call) bring(thread string, files []fileRef) error {
	files = slices.Clone(files)
	for i := range files {
		files[i].Name = relative(files[i].Name)
	}
	if i := slices.IndexFunc(files, func(f fileRef) bool { return f.session() == thread }); i >= 0 {
		if _, err := c.do(inprocess.Request{Method: http.MethodGet, Path: "/api/threads/" + thread}); err != nil {
			return missing(files[i], err)
		}
	}
	named, err := c.renamed(thread, files)
	if err != nil {
		return err
	}
	for i, f := range files {
		from := f.session()
		if from == thread {
			continue
		}
		name := f.Name
		if fileID(name) != f.ID {
			if name = named[i]; name == "" {
				return missing(f, nil)
			}
		}
		to := f.Name
		if to == "" {
			to = name
		}
		read := inprocess.Request{Method: http.MethodGet, Path: contentPath(from), Query: inWorkspace(name)}
		write := inprocess.Request{Method: http.MethodPut, Path: contentPath(thread), Query: inWorkspace(to)}
		refused, err := c.Copy(c.with(read), c.with(write))
		if refused != nil {
			return missing(f, refused)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// renamed returns the paths of the files that were renamed since their ids were made, by their places in files. It reads one
// session after the other: a list may have megabytes, and a request may name many sessions.
func (c *call) renamed(thread string, files []fileRef) (map[int]string, error) {
	wanted := map[string]map[string][]int{} // by session and id
	first := map[string]fileRef{}
	for i, f := range files {
		from := f.session()
		if from == thread || fileID(f.Name) == f.ID {
			continue
		}
		if wanted[from] == nil {
			wanted[from], first[from] = map[string][]int{}, f
		}
		wanted[from][f.ID] = append(wanted[from][f.ID], i)
	}
	named := map[int]string{}
	for from, ids := range wanted {
		all, err := c.files(from)
		if err != nil {
			return nil, missing(first[from], err)
		}
		for _, e := range all {
			for _, i := range ids[fileID(e.name)] {
				named[i] = strings.Clone(e.name) // not the whole list's
			}
		}
	}
	return named, nil
}

// missing names the file that could not be had. LibreChat uploads it again when it is told so.
func missing(f fileRef, err error) error {
	var refused *inprocess.Refusal
	if err == nil || errors.As(err, &refused) && refused.Status == http.StatusNotFound {
		return sandbox.Errorf(sandbox.NotFound, "the file %.200q is not there any more: upload it again", f.Name)
	}
	return err
}

// body reads the JSON of a request.
func (c *call) body(out any) error {
	if kind, _, err := mime.ParseMediaType(c.R.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return sandbox.Errorf(sandbox.Invalid, "Content-Type: the body has to be application/json")
	}
	if err := c.held.TakeBody(c.R.Context(), c.R.ContentLength, maxBody); err != nil {
		return err
	}
	raw, err := io.ReadAll(http.MaxBytesReader(c.W, c.R.Body, maxBody))
	c.held.KeepBody(len(raw))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return sandbox.Errorf(sandbox.QuotaExceeded, "the body has more than %d bytes", maxBody)
	case err != nil:
		return sandbox.Wrap(sandbox.Invalid, err, "the body did not arrive whole")
	case jsonedit.Values(raw) > maxValues:
		return sandbox.Errorf(sandbox.Invalid, "the body has more than %d values", maxValues)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if err := d.Decode(out); err != nil {
		return sandbox.Errorf(sandbox.Invalid, "the body: %.300s", err.Error())
	}
	return nil
}
