package sqlpack

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/packs/sql/database"
	"github.com/skerry-sandbox/skerry/packs/sql/table"
	"github.com/skerry-sandbox/skerry/sdk/go/packs"
)

const (
	defRows   = 100
	maxSQL    = 256 << 10
	maxParams = 1000
	maxTables = 200
	spareTime = 5 * time.Second // of a call, beyond its statement
	idBytes   = 4
)

// Pack is the tools, with the databases behind them.
type Pack struct {
	*packs.Pack

	databases map[string]database.Database
	config    Config
}

// New returns the pack for a configuration. It connects to no database.
func New(name, version string, c Config, log *slog.Logger) (*Pack, error) {
	databases, err := c.open(log)
	if err != nil {
		return nil, err
	}
	p := &Pack{packs.New(name, version), databases, c}
	p.Description = "Reads databases with SQL: " + strings.Join(slices.Sorted(maps.Keys(databases)), ", ")
	readOnly := packs.Annotations(map[string]any{"readOnlyHint": true, "openWorldHint": false})
	limit := packs.Timeout(c.Limits.Time + spareTime)
	err = errors.Join(
		packs.Tool(p.Pack, "list_databases", "Lists the databases, with their dialect of SQL and whether they can be written to", p.listDatabases, readOnly),
		packs.Tool(p.Pack, "list_tables", "Lists tables and views of a database with their columns, types, keys, estimated rows and comments", p.listTables, readOnly, limit),
		packs.Tool(p.Pack, "describe_table", "Describes one table: columns with defaults and comments, keys, indexes", p.describeTable, readOnly, limit),
		packs.Tool(p.Pack, "query", "Runs one SQL statement that reads, and returns its first rows. Bind values with params, and never put them into the text. For many rows use export", p.query, readOnly, limit, packs.Output[Rows]()),
		packs.Tool(p.Pack, "export", "Runs one SQL statement that reads, and writes all rows into a file in the sandbox (csv, jsonl or arrow), whose path it returns. Code reads the file", p.export, readOnly, limit, packs.Output[File]()),
		packs.Tool(p.Pack, "explain", "Shows the plan of one SQL statement; with analyze it runs the statement and shows times", p.explain, readOnly, limit),
	)
	if slices.ContainsFunc(slices.Collect(maps.Values(c.Databases)), func(s Source) bool { return s.Write }) {
		err = errors.Join(err, packs.Tool(p.Pack, "execute", "Runs one SQL statement that changes a database, and commits it. Returns how many rows changed, and the rows of RETURNING", p.execute,
			packs.Annotations(map[string]any{"readOnlyHint": false, "destructiveHint": true, "idempotentHint": false, "openWorldHint": false}), limit, packs.Output[Changed]()))
	}
	return p, err
}

// Check says which databases cannot be used now, and why.
func (p *Pack) Check(ctx context.Context) map[string]error {
	wrong := map[string]error{}
	for name, d := range p.databases {
		if err := d.Ping(ctx); err != nil {
			wrong[name] = err
		}
	}
	return wrong
}

// Close closes the databases.
func (p *Pack) Close() {
	for _, d := range p.databases {
		d.Close()
	}
}

// named returns the database of a name. The only one needs no name.
func (p *Pack) named(name string) (database.Database, error) {
	if name == "" && len(p.databases) == 1 {
		for _, d := range p.databases {
			return d, nil
		}
	}
	if d := p.databases[name]; d != nil {
		return d, nil
	}
	return nil, fmt.Errorf("there is no database %.80q: there are %s", name, strings.Join(slices.Sorted(maps.Keys(p.databases)), ", "))
}

// Statement is what agents send.
type Statement struct {
	Database string `json:"database,omitempty" jsonschema:"its name; may be left out when there is only one"`
	SQL      string `json:"sql" jsonschema:"one statement"`
	Params   []any  `json:"params,omitempty" jsonschema:"values for $1, $2 … (PostgreSQL) or ? (SQLite): null, true, numbers, texts; objects and lists are sent as JSON. A number beyond 2^53 is sent as a text"`
}

// statement checks a statement, and returns its database.
func (p *Pack) statement(s Statement) (database.Database, database.Statement, error) {
	out := database.Statement{SQL: s.SQL}
	switch {
	case strings.TrimSpace(s.SQL) == "":
		return nil, out, errors.New("sql is empty")
	case len(s.SQL) > maxSQL:
		return nil, out, fmt.Errorf("sql has %d bytes: it has at most %d", len(s.SQL), maxSQL)
	case strings.ContainsRune(s.SQL, 0):
		return nil, out, errors.New("sql has a byte of zero")
	case len(s.Params) > maxParams:
		return nil, out, fmt.Errorf("there are %d params: at most %d", len(s.Params), maxParams)
	}
	for i, v := range s.Params {
		switch v := v.(type) {
		case nil, bool, float64:
			out.Args = append(out.Args, v)
		case string:
			if strings.ContainsRune(v, 0) {
				return nil, out, fmt.Errorf("the text of param %d has a character of zero, which no database takes", i+1)
			}
			out.Args = append(out.Args, v)
		default:
			text, err := json.Marshal(v)
			if err != nil {
				return nil, out, err
			}
			out.Args = append(out.Args, string(text))
		}
	}
	d, err := p.named(s.Database)
	return d, out, err
}

// Databases are those that agents may use.
type Databases struct {
	Databases []Listed `json:"databases"`
}

// Listed is one of them.
type Listed struct {
	Name     string `json:"name"`
	Dialect  string `json:"dialect" jsonschema:"postgresql or sqlite"`
	Writable bool   `json:"writable" jsonschema:"whether execute may change it"`
}

func (p *Pack) listDatabases(context.Context, struct{}) (Databases, error) {
	out := Databases{}
	for _, name := range slices.Sorted(maps.Keys(p.databases)) {
		out.Databases = append(out.Databases, Listed{name, p.databases[name].Dialect(), p.config.Databases[name].Write})
	}
	return out, nil
}

// Summary is a table in a list.
type Summary struct {
	Table   string   `json:"table" jsonschema:"with its schema, where there are schemas"`
	Kind    string   `json:"kind"`
	Rows    *int64   `json:"rows,omitempty" jsonschema:"an estimate"`
	Comment string   `json:"comment,omitempty"`
	Columns []string `json:"columns" jsonschema:"name and type, not null, and a comment after --"`
	Keys    []string `json:"keys,omitempty"`
}

// Tables is a list of them.
type Tables struct {
	Tables    []Summary `json:"tables"`
	Truncated bool      `json:"truncated" jsonschema:"there are more: use schema or search"`
}

func (p *Pack) listTables(ctx context.Context, in struct {
	Database string `json:"database,omitempty" jsonschema:"its name; may be left out when there is only one"`
	Schema   string `json:"schema,omitempty" jsonschema:"only tables of this schema"`
	Search   string `json:"search,omitempty" jsonschema:"only tables with this in their name"`
}) (Tables, error) {
	d, err := p.named(in.Database)
	if err != nil {
		return Tables{}, err
	}
	list, err := d.Tables(ctx, database.Which{Schema: in.Schema, Like: in.Search, Limit: maxTables + 1})
	if err != nil {
		return Tables{}, err
	}
	out := Tables{Tables: []Summary{}, Truncated: len(list) > maxTables}
	for _, t := range list[:min(len(list), maxTables)] {
		s := Summary{Table: t.Name, Kind: t.Kind, Rows: t.Rows, Comment: t.Comment, Columns: []string{}, Keys: t.Keys}
		if t.Schema != "" {
			s.Table = t.Schema + "." + t.Name
		}
		for _, c := range t.Columns {
			text := strings.TrimSpace(c.Name + " " + c.Type)
			if c.NotNull {
				text += " not null"
			}
			if c.Comment != "" {
				text += " -- " + c.Comment
			}
			s.Columns = append(s.Columns, text)
		}
		out.Tables = append(out.Tables, s)
	}
	return out, nil
}

func (p *Pack) describeTable(ctx context.Context, in struct {
	Database string `json:"database,omitempty" jsonschema:"its name; may be left out when there is only one"`
	Table    string `json:"table" jsonschema:"a name, or schema.name"`
}) (database.Table, error) {
	d, err := p.named(in.Database)
	if err != nil {
		return database.Table{}, err
	}
	list, err := d.Tables(ctx, database.Which{Name: in.Table, Limit: 2})
	if schema, name, ok := strings.Cut(in.Table, "."); ok && err == nil && len(list) == 0 {
		list, err = d.Tables(ctx, database.Which{Schema: schema, Name: name, Limit: 2})
	}
	switch {
	case err != nil:
		return database.Table{}, err
	case len(list) == 0:
		return database.Table{}, fmt.Errorf("there is no table %.200q that can be read: list_tables names them", in.Table)
	case len(list) > 1:
		return database.Table{}, fmt.Errorf("the table %.200q is in more than one schema: write %s.%s or %s.%s", in.Table, list[0].Schema, list[0].Name, list[1].Schema, list[1].Name)
	}
	return list[0], nil
}

func (p *Pack) query(ctx context.Context, in struct {
	Statement

	MaxRows int `json:"max_rows,omitempty" jsonschema:"how many rows are returned; 100 without it"`
}) (*packs.Result, error) {
	d, s, err := p.statement(in.Statement)
	if err != nil {
		return nil, err
	}
	l := p.config.Limits
	if in.MaxRows < 0 || in.MaxRows > l.Rows {
		return nil, fmt.Errorf("max_rows is %d: it is at most %d; use export for more", in.MaxRows, l.Rows)
	}
	if in.MaxRows == 0 {
		in.MaxRows = min(defRows, l.Rows)
	}
	c := &collector{rows: in.MaxRows, bytes: l.Bytes}
	if _, err := d.Run(ctx, s, c); err != nil {
		return nil, err
	}
	if c.truncated && len(c.list) == 0 {
		return nil, fmt.Errorf("the first row has more than %d bytes: select fewer columns, or use export", l.Bytes)
	}
	return structured(c.answer())
}

func (p *Pack) execute(ctx context.Context, in Statement) (*packs.Result, error) {
	d, s, err := p.statement(in)
	if err != nil {
		return nil, err
	}
	for name, o := range p.databases {
		if o == d && !p.config.Databases[name].Write {
			return nil, fmt.Errorf("the database %s may not be written to", name)
		}
	}
	s.Write = true
	c := &collector{rows: p.config.Limits.Rows, bytes: p.config.Limits.Bytes, all: true}
	n, err := d.Run(ctx, s, c)
	if err != nil {
		return nil, err
	}
	return structured(changed{n, c.answer()})
}

func (p *Pack) explain(ctx context.Context, in struct {
	Statement

	Analyze bool `json:"analyze,omitempty" jsonschema:"run the statement, and show what took how long (PostgreSQL)"`
}) (string, error) {
	d, s, err := p.statement(in.Statement)
	if err != nil {
		return "", err
	}
	return d.Explain(ctx, s, in.Analyze)
}

var notPlain = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

const maxName = 60

func (p *Pack) export(ctx context.Context, in struct {
	Statement

	Format string `json:"format,omitempty" jsonschema:"csv (as without it), jsonl, or arrow: an Arrow file (IPC, Feather 2) for pyarrow, pandas and polars"`
	Name   string `json:"name,omitempty" jsonschema:"how the file's name begins"`
}) (*packs.Result, error) {
	d, s, err := p.statement(in.Statement)
	if err != nil {
		return nil, err
	}
	if in.Format == "" {
		in.Format = "csv"
	}
	l := p.config.Limits
	var file bytes.Buffer
	w, err := table.New(in.Format, &file, l.ExportBytes)
	if err != nil {
		return nil, err
	}
	c := &counter{Writer: w, ctx: ctx, most: l.ExportRows}
	if _, err := d.Run(ctx, s, c); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	id := make([]byte, idBytes)
	_, _ = rand.Read(id) // never fails (crypto/rand)
	base := strings.Trim(notPlain.ReplaceAllString(in.Name, "-"), "-_")
	if base = base[:min(len(base), maxName)]; base == "" {
		base = "export"
	}
	f := table.Of(in.Format)
	block, path := packs.File(base+"-"+hex.EncodeToString(id)+"."+f.Extension, f.MIMEType, file.Bytes())
	r, err := structured(File{path, in.Format, c.rows, file.Len(), c.columns})
	if err == nil {
		r.Content = append(r.Content, block)
	}
	return r, err
}
