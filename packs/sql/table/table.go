// Package table writes the rows of a result: as objects of JSON for a model, and as CSV, JSON lines or Arrow for code.
package table

import (
	"bytes"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/skerry-sandbox/skerry/packs/sql/database"
)

// Formats are those of files.
var Formats = []string{"csv", "jsonl", "arrow"}

// Format says how a file of a format is called.
type Format struct{ Extension, MIMEType string }

// Of says how files of a format are called.
func Of(format string) Format {
	switch format {
	case "arrow":
		return Format{"arrow", "application/vnd.apache.arrow.file"}
	case "jsonl":
		return Format{"jsonl", "application/jsonl"}
	}
	return Format{"csv", "text/csv"}
}

// Writer writes a file. Close ends it.
type Writer interface {
	database.Sink
	Close() error
}

// New returns a writer of a format. It fails as soon as the file has more than most bytes.
func New(format string, to *bytes.Buffer, most int) (Writer, error) {
	out := &bounded{to, most}
	switch format {
	case "csv":
		return &csvWriter{w: csv.NewWriter(out)}, nil
	case "jsonl":
		return &lineWriter{w: out}, nil
	case "arrow":
		return &arrowWriter{out: out}, nil
	}
	return nil, fmt.Errorf("the format %.40q is not known: it is one of %q", format, Formats)
}

// TooLarge is a file that has more bytes than it may have.
type TooLarge int

func (t TooLarge) Error() string {
	return fmt.Sprintf("the file would have more than %d bytes: select fewer columns or rows, or export in parts", int(t))
}

type bounded struct {
	to   *bytes.Buffer
	most int
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.to.Len()+len(p) > b.most {
		return 0, TooLarge(b.most)
	}
	return b.to.Write(p)
}

// Names are those of columns, each of them once: the second id is id_2.
func Names(columns []database.Column) []string {
	names, taken := make([]string, len(columns)), map[string]bool{}
	for i, c := range columns {
		name := c.Name
		for n := 2; taken[name]; n++ {
			name = c.Name + "_" + strconv.Itoa(n)
		}
		names[i], taken[name] = name, true
	}
	return names
}

// Object writes a row as an object of JSON, in the order of the columns.
func Object(names []string, columns []database.Column, values []any) ([]byte, error) {
	out := []byte{'{'}
	for i, v := range values {
		if i > 0 {
			out = append(out, ',')
		}
		key, err := encode(names[i])
		if err != nil {
			return nil, err
		}
		value, err := cell(columns[i].Kind, v)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", names[i], err)
		}
		out = append(append(append(out, key...), ':'), value...)
	}
	return append(out, '}'), nil
}

// maxExact is the largest number that JavaScript has with all integers below it.
const maxExact = 1 << 53

// cell is a value in JSON. An integer that JavaScript does not have is a string, as is a float that JSON does not have.
func cell(k database.Kind, v any) ([]byte, error) {
	switch v := v.(type) {
	case int64:
		if v > maxExact || v < -maxExact {
			return encode(strconv.FormatInt(v, 10))
		}
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return encode(strconv.FormatFloat(v, 'g', -1, 64))
		}
	case string:
		if k == database.JSON && json.Valid([]byte(v)) {
			return []byte(v), nil
		}
	}
	return encode(v)
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimRight(b.Bytes(), "\n"), err
}

type csvWriter struct {
	w     *csv.Writer
	cells []string
}

func (c *csvWriter) Columns(list []database.Column) error {
	c.cells = make([]string, len(list))
	return c.w.Write(Names(list))
}

func (c *csvWriter) Row(values []any) (bool, error) {
	for i, v := range values {
		c.cells[i] = plain(v)
	}
	return true, c.w.Write(c.cells)
}

func (c *csvWriter) Close() error {
	c.w.Flush()
	return c.w.Error()
}

// plain is a value as a text; NULL is an empty one.
func plain(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case []byte:
		return base64.StdEncoding.EncodeToString(v)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return fmt.Sprint(v)
}

type lineWriter struct {
	w       *bounded
	columns []database.Column
	names   []string
}

func (l *lineWriter) Columns(list []database.Column) error {
	l.columns, l.names = list, Names(list)
	return nil
}

func (l *lineWriter) Row(values []any) (bool, error) {
	line, err := Object(l.names, l.columns, values)
	if err == nil {
		_, err = l.w.Write(append(line, '\n'))
	}
	return true, err
}

func (l *lineWriter) Close() error { return nil }
