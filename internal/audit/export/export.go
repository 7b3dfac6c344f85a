// Package export writes audit records for other programs: as they are (jsonl), for spreadsheets (csv), and as events of the
// Open Cybersecurity Schema Framework (ocsf).
package export

import (
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Formats are the names that New knows.
var Formats = []string{"jsonl", "ocsf", "csv"}

// Writer writes records one after the other. It holds one at a time.
type Writer interface {
	Write(r audit.Record) error
	// Flush writes what is held back.
	Flush() error
}

// ContentType is the media type of a format.
func ContentType(format string) string {
	if format == "csv" {
		return "text/csv; charset=utf-8; header=present"
	}
	return "application/x-ndjson"
}

// New makes a writer of a format. Invalid: there is no such format.
func New(format string, w io.Writer) (Writer, error) {
	switch format {
	case "jsonl":
		return lines{w, func(r audit.Record) any { return r }}, nil
	case "ocsf":
		return lines{w, func(r audit.Record) any { return OCSF(r) }}, nil
	case "csv":
		t := &table{w: w}
		return t, t.row(columns)
	}
	return nil, sandbox.Errorf(sandbox.Invalid, "format %q: use one of %s", format, strings.Join(Formats, ", "))
}

// lines writes a JSON value a line.
type lines struct {
	w     io.Writer
	shape func(audit.Record) any
}

func (l lines) Write(r audit.Record) error {
	text, err := json.Marshal(l.shape(r))
	if err != nil {
		return err
	}
	_, err = l.w.Write(append(text, '\n'))
	return err
}

func (lines) Flush() error { return nil }

// columns are those of the table, as the members of a record are named.
var columns = []string{
	"time", "id", "tenant", "user", "thread", "sandbox", "exec", "parent", "phase", "action", "subject", "outcome", "detail", "ms", "bytes_in", "bytes_out",
	"args", "args_hash", "out_hash", "why", "auth", "key_id", "role", "actor", "request_id", "trace_id", "source", "user_agent", "writer", "seq", "prev", "hash",
}

// table is RFC 4180. (The csv package of the library would change line ends within cells.)
type table struct {
	w    io.Writer
	line []byte
}

func (t *table) row(cells []string) error {
	t.line = t.line[:0]
	for i, cell := range cells {
		if i > 0 {
			t.line = append(t.line, ',')
		}
		if cell != "" && (cell[0] == ' ' || strings.ContainsAny(cell, "\",\r\n\t")) {
			cell = `"` + strings.ReplaceAll(cell, `"`, `""`) + `"`
		}
		t.line = append(t.line, cell...)
	}
	t.line = append(t.line, "\r\n"...)
	_, err := t.w.Write(t.line)
	return err
}

func (t *table) Write(r audit.Record) error {
	n := func(v int64) string { return strconv.FormatInt(v, 10) }
	row := []string{
		r.Time.UTC().Format(time.RFC3339Nano), r.ID, r.Tenant, r.User, r.Thread, r.Sandbox, r.Exec, r.Parent, r.Phase, r.Action, r.Subject, r.Outcome, r.Detail,
		n(r.Millis), n(r.BytesIn), n(r.BytesOut),
		string(r.Args), r.ArgsHash, r.OutHash, string(r.Why), r.Auth, r.KeyID, r.Role, r.Actor, r.RequestID, r.TraceID, r.Source, r.UserAgent, r.Writer,
		strconv.FormatUint(r.Seq, 10), r.Prev, r.Hash,
	}
	for i, cell := range row {
		row[i] = inert(cell)
	}
	return t.row(row)
}

func (*table) Flush() error { return nil }

// inert keeps a spreadsheet from taking text for a formula: an apostrophe goes before the characters that begin one, also
// behind blanks, and before what a spreadsheet may read as such.
func inert(cell string) string {
	text := strings.TrimLeft(cell, " \u00a0\u3000")
	if text == "" {
		return cell
	}
	if strings.ContainsRune("=+-@\t\r\n|%＝＋－＠", []rune(text)[0]) {
		return "'" + cell
	}
	return cell
}
