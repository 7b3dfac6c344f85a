package sqlpack

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/skerry-sandbox/skerry/packs/sql/database"
	"github.com/skerry-sandbox/skerry/packs/sql/table"
	"github.com/skerry-sandbox/skerry/sdk/go/packs"
)

// Column is a column of a result.
type Column struct {
	Name string `json:"name"`
	Type string `json:"type,omitempty"`
}

// Rows is what query returns.
type Rows struct {
	Columns   []Column         `json:"columns"`
	Rows      []map[string]any `json:"rows" jsonschema:"an object for each row. Decimals, times and integers beyond 2^53 are texts, bytes are base64"`
	Truncated bool             `json:"truncated" jsonschema:"there are more rows"`
}

// Changed is what execute returns.
type Changed struct {
	Changed int64 `json:"changed" jsonschema:"how many rows"`
	Rows
}

// File is what export returns.
type File struct {
	Path    string   `json:"path" jsonschema:"of the file in the sandbox"`
	Format  string   `json:"format"`
	Rows    int      `json:"rows"`
	Bytes   int      `json:"bytes"`
	Columns []Column `json:"columns"`
}

// answer is a Rows whose rows are JSON already, in the order of their columns.
type answer struct {
	Columns   []Column          `json:"columns"`
	Rows      []json.RawMessage `json:"rows"`
	Truncated bool              `json:"truncated"`
}

// changed is a Changed with such rows.
type changed struct {
	Changed int64 `json:"changed"`
	answer
}

// structured is a result with a value for programs, and its text for the others.
func structured(v any) (*packs.Result, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return &packs.Result{Content: []map[string]any{{"type": "text", "text": string(text)}}, Structured: json.RawMessage(text)}, nil
}

func shown(list []database.Column) []Column {
	names, out := table.Names(list), make([]Column, len(list))
	for i, c := range list {
		out[i] = Column{names[i], c.Type}
	}
	return out
}

// collector keeps the first rows. With all it wants the others nevertheless, so that the statement runs to its end.
type collector struct {
	rows, bytes int
	all         bool

	columns   []database.Column
	names     []string
	list      []json.RawMessage
	truncated bool
}

func (c *collector) Columns(list []database.Column) error {
	c.columns, c.names = list, table.Names(list)
	return nil
}

func (c *collector) Row(values []any) (bool, error) {
	if c.truncated {
		return c.all, nil
	}
	row, err := table.Object(c.names, c.columns, values)
	if err != nil {
		return false, err
	}
	if len(c.list) >= c.rows || len(row) > c.bytes {
		c.truncated = true
		return c.all, nil
	}
	c.list, c.bytes = append(c.list, row), c.bytes-len(row)
	return true, nil
}

func (c *collector) answer() answer {
	a := answer{Columns: shown(c.columns), Rows: c.list, Truncated: c.truncated}
	if a.Rows == nil {
		a.Rows = []json.RawMessage{}
	}
	return a
}

// reportRows is after how many rows a caller hears how far an export is.
const reportRows = 50_000

// counter counts the rows of an export, and bounds them.
type counter struct {
	table.Writer

	ctx     context.Context //nolint:containedctx // the call's, for its progress
	most    int
	rows    int
	columns []Column
}

func (c *counter) Columns(list []database.Column) error {
	c.columns = shown(list)
	return c.Writer.Columns(list)
}

func (c *counter) Row(values []any) (bool, error) {
	if c.rows++; c.rows > c.most {
		return false, fmt.Errorf("the result has more than %d rows: select fewer, or export in parts", c.most)
	}
	if c.rows%reportRows == 0 {
		packs.Progress(c.ctx, float64(c.rows), 0, fmt.Sprintf("%d rows", c.rows))
	}
	return c.Writer.Row(values)
}
