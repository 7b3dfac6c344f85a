// Package database is what the pack's tools need of a database: PostgreSQL and SQLite provide it.
package database

import (
	"context"
	"fmt"
	"strings"
)

// Kind is what the values of a column are, as far as they are more than a text.
type Kind int

// The kinds. Of a column of Dynamic each value says itself what it is.
const (
	Text Kind = iota
	Dynamic
	Bool
	Int16
	Int32
	Int64
	Float32
	Float64
	Decimal
	JSON
	Bytes
	Date
	Time
	Timestamp
	TimestampUTC
)

// Column is one column of a result. Precision and Scale are of a Decimal that has a size; else Precision is 0.
type Column struct {
	Name      string
	Type      string
	Kind      Kind
	Precision int
	Scale     int
}

// Statement is one statement of SQL. Args are bound to its parameters: nil, bool, float64 or string.
type Statement struct {
	SQL  string
	Args []any
	// Write lets the statement change the database.
	Write bool
}

// Sink takes the rows of a result. Columns comes first, and once. A value is nil, bool, int64, float64, []byte, or a
// string: of JSON its text, of a decimal or a time what the database prints.
type Sink interface {
	Columns(list []Column) error
	// Row takes a row, and says whether it wants more. The slice is used again.
	Row(values []any) (more bool, err error)
}

// Table is a table or a view, as agents see it.
type Table struct {
	Schema  string   `json:"schema,omitempty"`
	Name    string   `json:"name"`
	Kind    string   `json:"kind" jsonschema:"table, view, materialized view, foreign table or partitioned table"`
	Rows    *int64   `json:"rows,omitempty" jsonschema:"an estimate of the database; absent: it has none"`
	Comment string   `json:"comment,omitempty"`
	Columns []Field  `json:"columns"`
	Keys    []string `json:"keys,omitempty" jsonschema:"primary, unique and foreign keys, and checks, as in SQL"`
	Indexes []string `json:"indexes,omitempty" jsonschema:"as in SQL"`
}

// Field is a column of a table.
type Field struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	NotNull bool   `json:"not_null,omitempty"`
	Default string `json:"default,omitempty"`
	Comment string `json:"comment,omitempty"`
}

// Which says which tables are meant: "" is any. Like is a part of the name.
type Which struct {
	Schema, Name, Like string
	Limit              int
}

// Database is one database. Its methods may be called at the same time.
type Database interface {
	// Dialect is "postgresql" or "sqlite".
	Dialect() string
	// Ping says whether the database can be used.
	Ping(ctx context.Context) error
	// Tables returns tables by schema and name, at most Limit of them.
	Tables(ctx context.Context, which Which) ([]Table, error)
	// Run runs one statement, and returns how many rows it changed. A sink that wants no more rows of a statement that
	// writes nothing ends it.
	Run(ctx context.Context, s Statement, to Sink) (changed int64, err error)
	// Explain returns the plan of a statement as a text. With analyze it runs the statement.
	Explain(ctx context.Context, s Statement, analyze bool) (string, error)
	Close()
}

// Error is what a database says about a statement.
type Error struct {
	Code     string // SQLSTATE, or the name of SQLite's code
	Message  string
	Detail   string
	Hint     string
	Position int // in characters, from 1; 0: it is not known
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Message)
	if e.Code != "" {
		fmt.Fprintf(&b, " (%s)", e.Code)
	}
	if e.Position > 0 {
		fmt.Fprintf(&b, " at character %d", e.Position)
	}
	if e.Detail != "" {
		b.WriteString("; detail: " + e.Detail)
	}
	if e.Hint != "" {
		b.WriteString("; hint: " + e.Hint)
	}
	return b.String()
}
