package postgres

import (
	"encoding/json"
	"fmt"

	"github.com/skerry-sandbox/skerry/packs/sql/database"
)

// tables collects the rows of tablesQuery.
type tables []database.Table

func (*tables) Columns([]database.Column) error { return nil }

func (l *tables) Row(v []any) (bool, error) {
	text := func(i int) string { s, _ := v[i].(string); return s }
	t := database.Table{Schema: text(0), Name: text(1), Kind: text(2), Comment: text(4), Columns: []database.Field{}}
	if n, ok := v[3].(int64); ok {
		t.Rows = &n
	}
	for i, into := range map[int]any{5: &t.Columns, 6: &t.Keys, 7: &t.Indexes} {
		if v[i] == nil {
			continue
		}
		if err := json.Unmarshal([]byte(text(i)), into); err != nil {
			return false, fmt.Errorf("the catalog's answer cannot be read: %w", err)
		}
	}
	*l = append(*l, t)
	return true, nil
}
