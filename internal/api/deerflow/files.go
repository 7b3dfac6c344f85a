package deerflow

import (
	"cmp"
	"encoding/base64"
	"io"
	"net/http"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/api/held"
	"github.com/skerry-sandbox/skerry/internal/api/inprocess"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// maxMatches is how many matches the API returns at most.
const maxMatches = 1000

// files is a route of the thread's files.
func (x *exchange) files(rest string) string { return "/api/threads/" + x.thread + "/files" + rest }

func (*adapter) readFile(x *exchange) error {
	var c struct {
		File      string `json:"file"`
		StartLine *int   `json:"start_line"` // from 0
		EndLine   *int   `json:"end_line"`   // the one after the last
		Sudo      bool   `json:"sudo"`
	}
	if err := x.body(&c); err != nil {
		return err
	}
	if err := notSupported(map[string]bool{"sudo": c.Sudo}); err != nil {
		return err
	}
	got, err := x.call(inprocess.Request{Method: http.MethodGet, Path: x.files("/content"), Query: map[string]string{"path": c.File}, Room: x.room})
	if err != nil {
		return err
	}
	// Never a part of it, and never changed: DeerFlow appends to a file by reading and writing all of it.
	if !utf8.Valid(got.Body()) {
		return sandbox.Errorf(sandbox.Invalid, "%s is no text in UTF-8: download it", c.File)
	}
	content, err := lines(string(got.Body()), c.StartLine, c.EndLine)
	if err != nil {
		return err
	}
	return x.ok(map[string]any{"content": content, "file": c.File})
}

// room is for a file that goes into an answer: as it is, as text, and as JSON.
func (x *exchange) room(bytes int64) error { return x.held.Take(x.r.Context(), held.Copies*bytes) }

// lines returns the lines of a text from one, counted from 0, until before another; all for nil.
func lines(text string, from, to *int) (string, error) {
	first, end := 0, -1
	if from != nil {
		first = *from
	}
	if to != nil {
		end = *to
	}
	if first < 0 || to != nil && end < 0 {
		return "", sandbox.Errorf(sandbox.Invalid, "start_line, end_line: cannot be negative")
	}
	if from == nil && to == nil {
		return text, nil
	}
	n, start := 0, len(text)
	for at := 0; at <= len(text); n++ {
		if n == first {
			start = at
		}
		if n == end {
			return strings.TrimSuffix(text[min(start, at):at], "\n"), nil
		}
		next := strings.IndexByte(text[at:], '\n')
		if next < 0 {
			break
		}
		at += next + 1
	}
	if to != nil {
		return strings.TrimSuffix(text[start:], "\n"), nil
	}
	return text[start:], nil
}

func (*adapter) writeFile(x *exchange) error {
	var c struct {
		File            string `json:"file"`
		Content         string `json:"content"`
		Encoding        string `json:"encoding"`
		Append          bool   `json:"append"`
		LeadingNewline  bool   `json:"leading_newline"`
		TrailingNewline bool   `json:"trailing_newline"`
		Sudo            bool   `json:"sudo"`
	}
	if err := x.body(&c); err != nil {
		return err
	}
	if err := notSupported(map[string]bool{"sudo": c.Sudo, "leading_newline": c.LeadingNewline, "trailing_newline": c.TrailingNewline}); err != nil {
		return err
	}
	var data io.Reader = strings.NewReader(c.Content) // no copy of it
	size := int64(len(c.Content))
	switch c.Encoding {
	case "", "utf-8":
	case "base64":
		decoded := func() io.Reader { return base64.NewDecoder(base64.StdEncoding, strings.NewReader(c.Content)) }
		var err error
		if size, err = io.Copy(io.Discard, decoded()); err != nil {
			return sandbox.Errorf(sandbox.Invalid, "content: is not base64")
		}
		data = decoded()
	default:
		return sandbox.Errorf(sandbox.NotSupported, "encoding: %.32q is not utf-8 or base64", c.Encoding)
	}
	q := inprocess.Request{Method: http.MethodPut, Path: x.files("/content"), Query: map[string]string{"path": c.File}, Body: data}
	if c.Append {
		q = inprocess.Request{Method: http.MethodPut, Path: x.files(""), Body: map[string]any{"path": c.File, "content": c.Content, "encoding": cmp.Or(c.Encoding, "utf-8"), "append": true}}
	}
	if err := x.do(q); err != nil {
		return err
	}
	return x.ok(map[string]any{"file": c.File, "bytes_written": size})
}

// download passes the API's answer on as it comes.
func (*adapter) download(x *exchange) error {
	query := x.r.URL.Query()
	for name := range query {
		if name != "path" && (name != "change_policy" || query.Get(name) != "") {
			return sandbox.Errorf(sandbox.NotSupported, "%s is not supported: DeerFlow does not send it", brief(name))
		}
	}
	r, err := x.caller().Make(x.with(inprocess.Request{Method: http.MethodGet, Path: x.files("/content"), Query: map[string]string{"path": query.Get("path")}}))
	if err != nil {
		return err
	}
	x.API.ServeHTTP(x.w, r)
	return nil
}

func (*adapter) find(x *exchange) error {
	var c struct {
		Path string `json:"path"`
		Glob string `json:"glob"`
	}
	if err := x.body(&c); err != nil {
		return err
	}
	var found paths.Listing
	if err := x.into(inprocess.Request{Method: http.MethodGet, Path: x.files("/glob"), Query: map[string]string{"path": c.Path, "pattern": anywhere(c.Glob)}}, &found); err != nil {
		return err
	}
	names := []string{}
	for _, e := range found.Items {
		if !e.IsDir {
			names = append(names, e.Path)
		}
	}
	return x.ok(map[string]any{"path": c.Path, "files": names})
}

// anywhere makes a pattern match at any depth, as one does in DeerFlow: from the right.
func anywhere(glob string) string {
	if glob == "" || strings.HasPrefix(glob, "**/") || strings.HasPrefix(glob, "/") {
		return glob
	}
	return "**/" + glob
}

// fileInfo is one entry of a list.
type fileInfo struct {
	Name         string `json:"name"`
	Path         string `json:"path"`
	IsDirectory  bool   `json:"is_directory"`
	Size         int64  `json:"size"`
	ModifiedTime string `json:"modified_time"`
	Permissions  string `json:"permissions"`
	Extension    string `json:"extension"`
}

func (*adapter) listFiles(x *exchange) error {
	var c struct {
		Path               string   `json:"path"`
		Recursive          bool     `json:"recursive"`
		ShowHidden         bool     `json:"show_hidden"`
		FileTypes          []string `json:"file_types"`
		MaxDepth           *int     `json:"max_depth"`
		IncludeSize        *bool    `json:"include_size"`
		IncludePermissions *bool    `json:"include_permissions"`
		SortBy             string   `json:"sort_by"`
		SortDesc           bool     `json:"sort_desc"`
	}
	if err := x.body(&c); err != nil {
		return err
	}
	if err := notSupported(map[string]bool{"file_types": c.FileTypes != nil, "max_depth": c.MaxDepth != nil, "sort_by": c.SortBy != "", "sort_desc": c.SortDesc}); err != nil {
		return err
	}
	depth := 1
	if c.Recursive {
		depth = 64
	}
	var found paths.Listing
	if err := x.into(inprocess.Request{Method: http.MethodGet, Path: x.files("/list"), Query: map[string]string{"path": c.Path, "depth": strconv.Itoa(depth)}}, &found); err != nil {
		return err
	}
	if found.Truncated { // the answer has no place to say so
		return sandbox.Errorf(sandbox.Invalid, "path: %s has more files than can be listed at once: list a folder in it", brief(c.Path))
	}
	items, folders := []fileInfo{}, 0
	for _, e := range found.Items {
		if !c.ShowHidden && hidden(c.Path, e.Path) {
			continue
		}
		if e.IsDir {
			folders++
		}
		items = append(items, fileInfo{
			Name: path.Base(e.Path), Path: e.Path, IsDirectory: e.IsDir, Size: e.Bytes, ModifiedTime: e.ModifiedAt.UTC().Format("2006-01-02T15:04:05Z"),
			Permissions: e.Mode, Extension: path.Ext(e.Path),
		})
	}
	return x.ok(map[string]any{"path": c.Path, "files": items, "total_count": len(items), "directory_count": folders, "file_count": len(items) - folders})
}

// hidden reports whether a file below a folder, or a folder between them, has a name that begins with a dot.
func hidden(folder, file string) bool {
	return strings.Contains(strings.TrimPrefix(file, strings.TrimSuffix(folder, "/")), "/.")
}

// grepRequest is the body of POST /v1/file/grep.
type grepRequest struct {
	Path            string   `json:"path"`
	Pattern         string   `json:"pattern"`
	Include         []string `json:"include"`
	Exclude         []string `json:"exclude"`
	CaseInsensitive bool     `json:"case_insensitive"`
	FixedStrings    bool     `json:"fixed_strings"`
	ContextBefore   *int     `json:"context_before"`
	ContextAfter    *int     `json:"context_after"`
	MaxResults      int      `json:"max_results"`
	MaxFileSize     string   `json:"max_file_size"` // the API has a limit of its own
	Multiline       bool     `json:"multiline"`
	Offset          *int     `json:"offset"`
	Type            string   `json:"type"`
	Recursive       *bool    `json:"recursive"`
}

var fileSize = regexp.MustCompile(`^([0-9]{1,9}[KMG]?)?$`)

func (c *grepRequest) check() error {
	if c.MaxResults < 0 || !fileSize.MatchString(c.MaxFileSize) {
		return sandbox.Errorf(sandbox.Invalid, "max_results, max_file_size: want a number, and a size such as 1M")
	}
	return notSupported(map[string]bool{
		"include": c.Include != nil, "exclude": c.Exclude != nil, "context_before": c.ContextBefore != nil, "context_after": c.ContextAfter != nil, "multiline": c.Multiline,
		"offset": c.Offset != nil, "type": c.Type != "", "recursive: false": c.Recursive != nil && !*c.Recursive,
	})
}

func (*adapter) grep(x *exchange) error {
	var c grepRequest
	if err := x.body(&c); err != nil {
		return err
	}
	if err := c.check(); err != nil {
		return err
	}
	limit := maxMatches
	if c.MaxResults > 0 {
		limit = min(limit, c.MaxResults)
	}
	var found paths.Matches
	if err := x.into(inprocess.Request{Method: http.MethodGet, Path: x.files("/grep"), Query: map[string]string{
		"path": c.Path, "pattern": c.Pattern, "regex": strconv.FormatBool(!c.FixedStrings), "ignore_case": strconv.FormatBool(c.CaseInsensitive), "max": strconv.Itoa(limit),
	}}, &found); err != nil {
		return err
	}
	matches, files := []map[string]any{}, map[string]bool{}
	for _, m := range found.Items {
		files[m.Path] = true
		matches = append(matches, map[string]any{"file": m.Path, "line_number": m.Line, "line_content": m.Text})
	}
	return x.ok(map[string]any{
		"path": c.Path, "pattern": c.Pattern, "matches": matches, "match_count": len(matches), "files_matched": len(files), "truncated": found.Truncated,
	})
}
