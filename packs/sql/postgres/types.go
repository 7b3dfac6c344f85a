package postgres

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/skerry-sandbox/skerry/packs/sql/database"
)

var kinds = map[uint32]database.Kind{
	pgtype.BoolOID: database.Bool, pgtype.Int2OID: database.Int16, pgtype.Int4OID: database.Int32, pgtype.Int8OID: database.Int64,
	pgtype.OIDOID: database.Int64, pgtype.Float4OID: database.Float32, pgtype.Float8OID: database.Float64, pgtype.NumericOID: database.Decimal,
	pgtype.JSONOID: database.JSON, pgtype.JSONBOID: database.JSON, pgtype.ByteaOID: database.Bytes, pgtype.DateOID: database.Date,
	pgtype.TimeOID: database.Time, pgtype.TimestampOID: database.Timestamp, pgtype.TimestamptzOID: database.TimestampUTC,
}

// The type modifier of a numeric is its precision and scale, after a header of 4 bytes.
const (
	modifierHeader = 4
	scaleBits      = 16
	scaleMask      = 0x7ff
	scaleSign      = 0x400
)

// columns are those of a result. The names of types that are not built in are asked for, in the same transaction.
func (d *Database) columns(ctx context.Context, pg *pgconn.PgConn, fields []pgconn.FieldDescription) ([]database.Column, error) {
	list := make([]database.Column, len(fields))
	var unknown []string
	for i, f := range fields {
		list[i] = database.Column{Name: f.Name, Kind: kinds[f.DataTypeOID]}
		if t, ok := d.types.TypeForOID(f.DataTypeOID); ok {
			list[i].Type = t.Name
		} else {
			unknown = append(unknown, strconv.FormatUint(uint64(f.DataTypeOID), 10))
		}
		if f.DataTypeOID == pgtype.NumericOID && f.TypeModifier >= modifierHeader {
			m := int(f.TypeModifier) - modifierHeader
			list[i].Precision, list[i].Scale = m>>scaleBits, (m&scaleMask^scaleSign)-scaleSign
		}
	}
	if len(unknown) == 0 {
		return list, nil
	}
	r := pg.ExecParams(ctx, "SELECT oid, pg_catalog.format_type(oid, NULL) FROM pg_catalog.pg_type WHERE oid = ANY($1::oid[])", [][]byte{[]byte("{" + strings.Join(unknown, ",") + "}")}, nil, nil, nil).Read()
	if r.Err != nil {
		return nil, r.Err
	}
	names := map[string]string{}
	for _, row := range r.Rows {
		names[string(row[0])] = string(row[1])
	}
	for i, f := range fields {
		if list[i].Type == "" {
			list[i].Type = names[strconv.FormatUint(uint64(f.DataTypeOID), 10)]
		}
	}
	return list, nil
}

// value reads what the server prints. What is not known to have another form is a text.
func value(k database.Kind, raw []byte) (any, error) {
	if raw == nil {
		return nil, nil //nolint:nilnil // NULL
	}
	switch k {
	case database.Bool:
		return string(raw) == "t", nil
	case database.Int16, database.Int32, database.Int64:
		return strconv.ParseInt(string(raw), 10, 64)
	case database.Float32:
		return strconv.ParseFloat(string(raw), 32)
	case database.Float64:
		return strconv.ParseFloat(string(raw), 64)
	case database.Bytes:
		digits, ok := strings.CutPrefix(string(raw), `\x`)
		if !ok {
			return nil, errors.New("bytes are not in hex")
		}
		return hex.DecodeString(digits)
	}
	return string(raw), nil
}

const tablesQuery = `SELECT n.nspname, c.relname,
 CASE c.relkind WHEN 'r' THEN 'table' WHEN 'p' THEN 'partitioned table' WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' ELSE 'foreign table' END,
 CASE WHEN c.relkind IN ('r','m','p') AND c.reltuples >= 0 THEN c.reltuples::bigint END,
 pg_catalog.obj_description(c.oid, 'pg_class'),
 (SELECT json_agg(json_build_object('name', a.attname, 'type', pg_catalog.format_type(a.atttypid, a.atttypmod), 'not_null', a.attnotnull,
   'default', coalesce(pg_catalog.pg_get_expr(f.adbin, f.adrelid), ''), 'comment', coalesce(pg_catalog.col_description(c.oid, a.attnum), '')) ORDER BY a.attnum)
  FROM pg_catalog.pg_attribute a LEFT JOIN pg_catalog.pg_attrdef f ON f.adrelid = a.attrelid AND f.adnum = a.attnum
  WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
 (SELECT json_agg(k.conname || ' ' || pg_catalog.pg_get_constraintdef(k.oid) ORDER BY k.contype = 'p' DESC, k.conname)
  FROM pg_catalog.pg_constraint k WHERE k.conrelid = c.oid AND k.contype IN ('p','u','f','c')),
 (SELECT json_agg(pg_catalog.pg_get_indexdef(i.indexrelid) ORDER BY i.indexrelid) FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r','p','v','m','f') AND NOT c.relispartition AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
 AND pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND pg_catalog.has_any_column_privilege(c.oid, 'SELECT')
 AND ($1 = '' OR n.nspname = $1) AND ($2 = '' OR c.relname = $2) AND ($3 = '' OR strpos(lower(c.relname), lower($3)) > 0)
ORDER BY 1, 2 LIMIT $4::int`

// Tables implements database.Database.
func (d *Database) Tables(ctx context.Context, w database.Which) ([]database.Table, error) {
	var list tables
	_, err := d.Run(ctx, database.Statement{SQL: tablesQuery, Args: []any{w.Schema, w.Name, w.Like, float64(w.Limit)}}, &list)
	if err != nil {
		return nil, fmt.Errorf("the tables cannot be listed: %w", err)
	}
	return list, nil
}
