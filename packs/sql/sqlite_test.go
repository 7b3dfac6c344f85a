package sqlpack_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/ncruces/go-sqlite3"

	sqlpack "github.com/skerry-sandbox/skerry/packs/sql"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newPack(t *testing.T, c sqlpack.Config) *sqlpack.Pack {
	t.Helper()
	p, err := sqlpack.New("sql", "1", c, slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(p.Close)
	return p
}

// call calls a tool, and reads its structured content into out. It returns the text of a failure, or "".
func call(t *testing.T, p *sqlpack.Pack, tool string, in map[string]any, out any) string {
	t.Helper()
	r, err := p.Call(t.Context(), tool, in)
	must(t, err)
	if r.IsError {
		return r.Text()
	}
	if out != nil {
		raw, err := json.Marshal(r.Structured)
		must(t, err)
		must(t, json.Unmarshal(raw, out))
	}
	return ""
}

// file returns the bytes of the file that an export returns.
func file(t *testing.T, p *sqlpack.Pack, in map[string]any) (sqlpack.File, []byte) {
	t.Helper()
	r, err := p.Call(t.Context(), "export", in)
	must(t, err)
	if r.IsError {
		t.Fatal(r.Text())
	}
	var f sqlpack.File
	raw, _ := json.Marshal(r.Structured)
	must(t, json.Unmarshal(raw, &f))
	resource, _ := r.Content[1]["resource"].(map[string]any)
	blob, _ := resource["blob"].(string)
	content, err := base64.StdEncoding.DecodeString(blob)
	must(t, err)
	if resource["uri"] != "file://"+f.Path || f.Bytes != len(content) {
		t.Errorf("%+v is not %v with %d bytes", f, resource["uri"], len(content))
	}
	return f, content
}

const shop = `CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT NOT NULL, born TEXT);
CREATE TABLE sale (id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customer(id), amount REAL DEFAULT 0, note BLOB);
CREATE INDEX sale_customer ON sale(customer_id);
INSERT INTO customer VALUES (1, 'Ada', '1815-12-10'), (2, 'Bo''b', NULL);
INSERT INTO sale VALUES (1, 1, 1.5, x'00ff'), (2, 1, 3, NULL), (9007199254740993, 2, 9e999, NULL);`

func shopFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shop.db")
	conn, err := sqlite3.Open(path)
	must(t, err)
	must(t, conn.Exec(shop))
	must(t, conn.Close())
	return path
}

func sqlitePack(t *testing.T, write bool, l sqlpack.Limits) (p *sqlpack.Pack, path string) {
	t.Helper()
	path = shopFile(t)
	return newPack(t, sqlpack.Config{Databases: map[string]sqlpack.Source{"shop": {URL: "sqlite:" + path, Write: write}}, Limits: l}), path
}

// TestSQLite: an agent finds tables, asks with bound values, gets the plan, and exports all formats.
func TestSQLite(t *testing.T) {
	t.Parallel()
	p, _ := sqlitePack(t, false, sqlpack.Limits{})
	var tables sqlpack.Tables
	if e := call(t, p, "list_tables", map[string]any{}, &tables); e != "" || len(tables.Tables) != 2 || tables.Tables[0].Columns[1] != "name text not null" {
		t.Fatalf("%s %+v", e, tables)
	}
	if got := strings.Join(tables.Tables[1].Keys, ";"); got != "PRIMARY KEY (id);FOREIGN KEY (customer_id) REFERENCES customer(id)" {
		t.Errorf("%s", got)
	}
	var described struct{ Indexes []string }
	if e := call(t, p, "describe_table", map[string]any{"table": "sale"}, &described); e != "" || len(described.Indexes) != 1 {
		t.Errorf("%s %+v", e, described)
	}
	var rows sqlpack.Rows
	if e := call(t, p, "query", map[string]any{"sql": "SELECT id, id, name FROM customer WHERE name = ?", "params": []any{"Bo'b"}}, &rows); e != "" || len(rows.Rows) != 1 || rows.Rows[0]["name"] != "Bo'b" || rows.Rows[0]["id_2"] != 2.0 || rows.Truncated {
		t.Errorf("%s %+v", e, rows)
	}
	rows = sqlpack.Rows{}
	if e := call(t, p, "query", map[string]any{"sql": "SELECT * FROM sale ORDER BY id", "max_rows": 2}, &rows); e != "" || len(rows.Rows) != 2 || !rows.Truncated || rows.Rows[0]["note"] != "AP8=" {
		t.Errorf("%s %+v", e, rows)
	}
	rows = sqlpack.Rows{}
	if e := call(t, p, "query", map[string]any{"sql": "SELECT max(id) AS id, max(amount) AS amount FROM sale"}, &rows); e != "" || rows.Rows[0]["id"] != "9007199254740993" || rows.Rows[0]["amount"] != "+Inf" {
		t.Errorf("%s %+v", e, rows)
	}
	r, err := p.Call(t.Context(), "explain", map[string]any{"sql": "SELECT * FROM sale WHERE customer_id = ?", "params": []any{1}})
	if err != nil || !strings.Contains(r.Text(), "sale_customer") {
		t.Errorf("%v %s", err, r.Text())
	}
	f, content := file(t, p, map[string]any{"sql": "SELECT id, name, born FROM customer ORDER BY id", "name": "../All customers!"})
	if string(content) != "id,name,born\n1,Ada,1815-12-10\n2,Bo'b,\n" || f.Rows != 2 || !strings.Contains(f.Path, "/tool-results/All-customers-") {
		t.Errorf("%+v %s", f, content)
	}
	if _, content = file(t, p, map[string]any{"sql": "SELECT name FROM customer ORDER BY id", "format": "jsonl"}); string(content) != "{\"name\":\"Ada\"}\n{\"name\":\"Bo'b\"}\n" {
		t.Errorf("%s", content)
	}
	_, content = file(t, p, map[string]any{"sql": "SELECT id, amount, note, 1 + id AS next, NULL AS gone FROM sale ORDER BY id", "format": "arrow"})
	reader, err := ipc.NewFileReader(bytes.NewReader(content))
	must(t, err)
	if got := reader.Schema().String(); !strings.Contains(got, "amount: type=float64") || !strings.Contains(got, "note: type=binary") || !strings.Contains(got, "next: type=int64") {
		t.Error(got)
	}
	if b, err := reader.RecordBatch(0); err != nil || b.NumRows() != 3 {
		t.Errorf("%v %v", err, b)
	}
}

// attacks are statements that want more than to read.
var attacks = []string{
	"DELETE FROM sale", "INSERT INTO customer VALUES (3, 'x', NULL)", "UPDATE sale SET amount = 0", "DROP TABLE sale", "CREATE TABLE x (a)", "CREATE TEMP TABLE x (a)",
	"ALTER TABLE sale ADD x", "REPLACE INTO customer VALUES (1, 'x', NULL)", "WITH a AS (SELECT 1) DELETE FROM sale RETURNING *",
	"SELECT 1; DELETE FROM sale", "SELECT 1;; DROP TABLE sale", "SELECT 1; syntax error", "PRAGMA query_only = OFF", "PRAGMA writable_schema = ON", "PRAGMA journal_mode = WAL",
	"SELECT * FROM pragma_query_only", "ATTACH ':memory:' AS x", "ATTACH 'TMP/y.db' AS x", "VACUUM", "VACUUM INTO 'TMP/y.db'", "REINDEX", "ANALYZE", "BEGIN IMMEDIATE", "COMMIT", "SAVEPOINT a",
	"SELECT load_extension('TMP/y.so')", "CREATE VIRTUAL TABLE x USING fts5(a)", "SELECT writefile('TMP/y', 'x')", "SELECT readfile('/etc/passwd')", "SELECT edit('x')",
	"SELECT fts3_tokenizer('simple', x'4141414141414141')", "DETACH main", "PRAGMA temp_store_directory = 'TMP'", "EXPLAIN DELETE FROM sale; DELETE FROM sale",
}

// TestSQLiteReadOnly: no statement of a database that may not be written to changes a file, or makes one.
func TestSQLiteReadOnly(t *testing.T) {
	t.Parallel()
	for _, write := range []bool{false, true} { // the tools that read must not write, either way
		p, path := sqlitePack(t, write, sqlpack.Limits{})
		before, err := os.ReadFile(path)
		must(t, err)
		for _, sql := range attacks {
			sql = strings.ReplaceAll(sql, "TMP", filepath.Dir(path))
			for _, tool := range []string{"query", "export"} {
				if e := call(t, p, tool, map[string]any{"sql": sql}, nil); e == "" {
					t.Errorf("%s took %s", tool, sql)
				}
			}
			_ = call(t, p, "explain", map[string]any{"sql": sql}, nil) // a plan alone is no harm
		}
		after, err := os.ReadFile(path)
		must(t, err)
		if sha256.Sum256(before) != sha256.Sum256(after) {
			t.Error("the file is another one")
		}
		if there, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(there) != 1 {
			t.Errorf("there are %v", there)
		}
	}
	p, _ := sqlitePack(t, false, sqlpack.Limits{})
	if _, err := p.Call(t.Context(), "execute", map[string]any{"sql": "DELETE FROM sale"}); err == nil {
		t.Error("a pack without databases to write to has execute")
	}
}

// TestSQLiteWrite: execute changes a database that may be written to, and still leaves the file.
func TestSQLiteWrite(t *testing.T) {
	t.Parallel()
	p, path := sqlitePack(t, true, sqlpack.Limits{})
	var c sqlpack.Changed
	if e := call(t, p, "execute", map[string]any{"sql": "UPDATE sale SET amount = amount + ? WHERE customer_id = 1 RETURNING id", "params": []any{1}}, &c); e != "" || c.Changed != 2 || len(c.Rows.Rows) != 2 {
		t.Errorf("%s %+v", e, c)
	}
	for _, sql := range []string{"ATTACH 'TMP/y.db' AS x", "VACUUM INTO 'TMP/y.db'", "PRAGMA journal_mode = WAL", "PRAGMA writable_schema = ON", "DELETE FROM sale; DELETE FROM customer", "SELECT load_extension('x')"} {
		if e := call(t, p, "execute", map[string]any{"sql": strings.ReplaceAll(sql, "TMP", filepath.Dir(path))}, nil); e == "" {
			t.Errorf("execute took %s", sql)
		}
	}
	var rows sqlpack.Rows
	if e := call(t, p, "query", map[string]any{"sql": "SELECT sum(amount) AS s, count(*) AS n FROM sale WHERE customer_id = 1"}, &rows); e != "" || rows.Rows[0]["s"] != 6.5 || rows.Rows[0]["n"] != 2.0 {
		t.Errorf("%s %+v", e, rows)
	}
}

// TestSQLiteLimits: a statement ends at its time, with the call, and at the limits of rows, bytes and memory.
func TestSQLiteLimits(t *testing.T) {
	t.Parallel()
	const endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
	p, _ := sqlitePack(t, false, sqlpack.Limits{Time: time.Second, ExportRows: 100, ExportBytes: 1000, Bytes: 1000})
	if e := call(t, p, "query", map[string]any{"sql": endless}, nil); !strings.Contains(e, "longer than 1s") {
		t.Errorf("time: %s", e)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := p.Call(ctx, "query", map[string]any{"sql": endless}); err != nil || !r.IsError {
		t.Errorf("a call that is over: %v %+v", err, r)
	}
	for what, in := range map[string]map[string]any{
		"100 rows":   {"sql": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT 1 AS a FROM n"},
		"1000 bytes": {"sql": "SELECT hex(zeroblob(600))"},
		"format":     {"sql": "SELECT 1", "format": "xlsx"},
		"empty":      {"sql": " "},
		"TOOBIG":     {"sql": "SELECT zeroblob(100000000)"},
	} {
		if e := call(t, p, "export", in, nil); !strings.Contains(e, what) {
			t.Errorf("%s: %s", what, e)
		}
	}
	if e := call(t, p, "query", map[string]any{"sql": "SELECT hex(zeroblob(600))"}, nil); !strings.Contains(e, "first row") {
		t.Errorf("bytes: %s", e)
	}
	for sql, params := range map[string][]any{"SELECT ?": nil, "SELECT 1": {1}, "SELECT ?, ?": {1}} {
		if e := call(t, p, "query", map[string]any{"sql": sql, "params": params}, nil); !strings.Contains(e, "parameters") && params != nil {
			t.Errorf("%s with %v: %s", sql, params, e)
		}
	}
	if e := call(t, p, "query", map[string]any{"sql": "SELECT nme FROM customer"}, nil); !strings.Contains(e, "no such column: nme") {
		t.Errorf("%s", e)
	}
}

// TestConfig: what is wrong is named, and a password stands on no command line and in no error.
func TestConfig(t *testing.T) {
	t.Parallel()
	variable := func(name string) string { return map[string]string{"SHOP_URL": "postgres://u:sesame@[bad"}[name] }
	for want, s := range map[string]sqlpack.Source{
		"which others on this machine see": {URL: "postgres://u:sesame@h/d"},
		"others on this":                   {URL: "postgres://u@h/d?password=sesame"},
		"cannot be read":                   {URL: "env:SHOP_URL"},
		"is not set":                       {URL: "env:NO_SUCH_URL"},
		"none of":                          {URL: "mysql://u:sesame@h/d"},
		"no such file":                     {URL: "file:/does/not/exist"},
	} {
		_, err := sqlpack.New("sql", "1", sqlpack.Config{Databases: map[string]sqlpack.Source{"shop": s}, Variable: variable}, slog.Default())
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%+v: %v", s, err)
		}
	}
	for want, c := range map[string]sqlpack.Config{
		"0 databases": {},
		"no name of":  {Databases: map[string]sqlpack.Source{"A B": {}}},
		"limits.rows": {Limits: sqlpack.Limits{Rows: 1 << 30}},
		"limits.time": {Limits: sqlpack.Limits{Time: time.Hour}},
	} {
		if _, err := sqlpack.New("sql", "1", c, slog.Default()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	config := filepath.Join(t.TempDir(), "sql.yaml")
	must(t, os.WriteFile(config, []byte("databases:\n  shop: {url: 'sqlite:/x.db', write: true}\nlimits: {rows: 5, time: 10s}\n"), 0o600))
	c, err := sqlpack.ReadConfig(config)
	if err != nil || !c.Databases["shop"].Write || c.Limits.Rows != 5 || c.Limits.Time != 10*time.Second {
		t.Errorf("%v %+v", err, c)
	}
	must(t, os.WriteFile(config, []byte("databases:\n  shop: {uri: x}\n"), 0o600))
	if _, err := sqlpack.ReadConfig(config); err == nil || !strings.Contains(err.Error(), "uri") {
		t.Errorf("%v", err)
	}
}
