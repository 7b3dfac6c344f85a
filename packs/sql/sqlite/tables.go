package sqlite

import (
	"context"
	"fmt"
	"strings"

	"github.com/skerry-sandbox/skerry/packs/sql/database"
)

// collected keeps the rows of our own queries.
type collected struct{ rows [][]any }

func (*collected) Columns([]database.Column) error { return nil }

func (c *collected) Row(values []any) (bool, error) {
	c.rows = append(c.rows, append([]any(nil), values...))
	return true, nil
}

// Tables implements database.Database.
func (d *Database) Tables(ctx context.Context, w database.Which) ([]database.Table, error) {
	if w.Schema != "" && w.Schema != "main" {
		return nil, nil
	}
	var names collected
	_, err := d.Run(ctx, database.Statement{
		SQL: `SELECT name, type FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\_%' ESCAPE '\'
 AND (?1 = '' OR name = ?1) AND (?2 = '' OR instr(lower(name), lower(?2)) > 0) ORDER BY name LIMIT ?3`,
		Args: []any{w.Name, w.Like, float64(w.Limit)},
	}, &names)
	if err != nil {
		return nil, fmt.Errorf("the tables cannot be listed: %w", err)
	}
	estimates := d.estimates(ctx)
	var list []database.Table
	for _, row := range names.rows {
		t := database.Table{Name: text(row[0]), Kind: text(row[1]), Columns: []database.Field{}}
		if n, ok := estimates[t.Name]; ok {
			t.Rows = &n
		}
		if err := d.describe(ctx, &t); err != nil {
			return nil, fmt.Errorf("the table %s cannot be described: %w", t.Name, err)
		}
		list = append(list, t)
	}
	return list, nil
}

func text(v any) string { s, _ := v.(string); return s }

// estimates are what ANALYZE has found, if it ever ran.
func (d *Database) estimates(ctx context.Context) map[string]int64 {
	var found collected
	out := map[string]int64{}
	if _, err := d.Run(ctx, database.Statement{SQL: "SELECT tbl, max(CAST(stat AS INTEGER)) FROM sqlite_stat1 GROUP BY tbl"}, &found); err != nil {
		return out // there is no such table
	}
	for _, row := range found.rows {
		out[text(row[0])], _ = row[1].(int64)
	}
	return out
}

func (d *Database) describe(ctx context.Context, t *database.Table) error {
	ask := func(sql string) ([][]any, error) {
		var c collected
		_, err := d.Run(ctx, database.Statement{SQL: sql, Args: []any{t.Name}}, &c)
		return c.rows, err
	}
	columns, err := ask("SELECT name, type, \"notnull\", dflt_value, pk FROM pragma_table_xinfo(?) ORDER BY cid")
	if err != nil {
		return err
	}
	var primary []string
	for _, c := range columns {
		notNull, _ := c[2].(int64)
		t.Columns = append(t.Columns, database.Field{Name: text(c[0]), Type: strings.ToLower(text(c[1])), NotNull: notNull != 0, Default: text(c[3])})
		if pk, _ := c[4].(int64); pk > 0 {
			primary = append(primary, text(c[0]))
		}
	}
	if len(primary) > 0 {
		t.Keys = append(t.Keys, "PRIMARY KEY ("+strings.Join(primary, ", ")+")")
	}
	foreign, err := ask("SELECT group_concat(\"from\", ', '), \"table\", group_concat(\"to\", ', ') FROM pragma_foreign_key_list(?) GROUP BY id ORDER BY id")
	if err != nil {
		return err
	}
	for _, f := range foreign {
		t.Keys = append(t.Keys, fmt.Sprintf("FOREIGN KEY (%s) REFERENCES %s(%s)", text(f[0]), text(f[1]), text(f[2])))
	}
	indexes, err := ask("SELECT sql FROM sqlite_schema WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL ORDER BY name")
	for _, i := range indexes {
		t.Indexes = append(t.Indexes, text(i[0]))
	}
	return err
}

// Explain implements database.Database. SQLite has no plan with times.
func (d *Database) Explain(ctx context.Context, s database.Statement, analyze bool) (string, error) {
	if analyze {
		return "", fmt.Errorf("SQLite has no EXPLAIN ANALYZE")
	}
	var c collected
	if _, err := d.Run(ctx, database.Statement{SQL: "EXPLAIN QUERY PLAN " + s.SQL, Args: s.Args}, &c); err != nil {
		return "", err
	}
	depth := map[int64]int{0: -1}
	var lines []string
	for _, row := range c.rows {
		id, _ := row[0].(int64)
		parent, _ := row[1].(int64)
		depth[id] = depth[parent] + 1
		lines = append(lines, strings.Repeat("  ", depth[id])+text(row[3]))
	}
	return strings.Join(lines, "\n"), nil
}
