// Package sqlite runs statements in files of SQLite. A statement that may not write runs on a connection that has opened
// the file for reading, in the mode query_only, behind an authorizer that lets nothing but reading through. Each statement
// has a connection of its own, so nothing of one is left to the next.
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/skerry-sandbox/skerry/packs/sql/database"
)

const (
	maxValue   = 16 << 20 // bytes of a value, and of a row
	maxMemory  = 256 << 20
	maxSQL     = 1 << 20
	maxOps     = 1_000_000
	maxDepth   = 200
	maxParts   = 100 // SELECTs of one UNION
	maxColumns = 500
	maxPattern = 1000 // of LIKE and GLOB, whose time grows with it
	busyTime   = 5 * time.Second
)

// Options say which file, and how much of it.
type Options struct {
	File        string
	Write       bool
	Connections int
	Time        time.Duration // of a statement
}

// Database is one file.
type Database struct {
	o     Options
	slots chan struct{}
}

// Open returns a database. It opens the file for each statement.
func Open(o Options) (*Database, error) {
	if !filepath.IsAbs(o.File) {
		return nil, fmt.Errorf("the file %q is not an absolute path", o.File)
	}
	return &Database{o, make(chan struct{}, o.Connections)}, nil
}

// Dialect implements database.Database.
func (d *Database) Dialect() string { return "sqlite" }

// Close implements database.Database.
func (d *Database) Close() {}

// Ping implements database.Database.
func (d *Database) Ping(ctx context.Context) error {
	_, err := d.Run(ctx, database.Statement{SQL: "SELECT count(*) FROM sqlite_schema"}, &collected{})
	return err
}

// connect opens the file within the limits of a statement.
func (d *Database) connect(ctx context.Context, write bool) (*sqlite3.Conn, error) {
	flags := sqlite3.OPEN_READONLY
	if write {
		flags = sqlite3.OPEN_READWRITE
	}
	conn, err := sqlite3.OpenFlags(d.o.File, flags) // no URI: the name has no options
	if err != nil {
		return nil, errors.New("the file cannot be opened")
	}
	conn.SetInterrupt(ctx)
	if err := prepare(conn, write); err != nil {
		return nil, errors.Join(fmt.Errorf("the file cannot be used: %w", explained(ctx, err)), conn.Close())
	}
	return conn, nil
}

func prepare(conn *sqlite3.Conn, write bool) error {
	for id, most := range map[sqlite3.LimitCategory]int{
		sqlite3.LIMIT_ATTACHED: 0, sqlite3.LIMIT_LENGTH: maxValue, sqlite3.LIMIT_SQL_LENGTH: maxSQL, sqlite3.LIMIT_VDBE_OP: maxOps, sqlite3.LIMIT_EXPR_DEPTH: maxDepth,
		sqlite3.LIMIT_COMPOUND_SELECT: maxParts, sqlite3.LIMIT_COLUMN: maxColumns, sqlite3.LIMIT_LIKE_PATTERN_LENGTH: maxPattern, sqlite3.LIMIT_WORKER_THREADS: 0,
	} {
		conn.Limit(id, most)
	}
	conn.HardHeapLimit(maxMemory)
	_, err := conn.Config(sqlite3.DBCONFIG_DEFENSIVE, true)
	if err == nil {
		_, err = conn.Config(sqlite3.DBCONFIG_TRUSTED_SCHEMA, false)
	}
	if err == nil {
		err = conn.BusyTimeout(busyTime)
	}
	if err == nil { // what does not fit into memory is an error, and no file
		err = conn.Exec("PRAGMA temp_store = MEMORY")
	}
	if err == nil && !write {
		err = conn.Exec("PRAGMA query_only = ON")
	}
	if err == nil {
		err = conn.SetAuthorizer(func(action sqlite3.AuthorizerActionCode, third, fourth, _, _ string) sqlite3.AuthorizerReturnCode {
			if allowed(action, third, fourth, write) {
				return sqlite3.AUTH_OK
			}
			return sqlite3.AUTH_DENY
		})
	}
	return err
}

// pragmas tell what a schema is. Others set things, or read what no agent needs.
var pragmas = []string{"table_info", "table_xinfo", "table_list", "foreign_key_list", "index_list", "index_info", "index_xinfo"}

// allowed says what a statement may do. ATTACH, transactions and most pragmas are of no use for one statement alone.
func allowed(action sqlite3.AuthorizerActionCode, third, fourth string, write bool) bool {
	switch action {
	case sqlite3.AUTH_SELECT, sqlite3.AUTH_READ, sqlite3.AUTH_RECURSIVE:
		return true
	case sqlite3.AUTH_FUNCTION:
		return !strings.EqualFold(fourth, "load_extension")
	case sqlite3.AUTH_PRAGMA:
		return slices.Contains(pragmas, strings.ToLower(third))
	case sqlite3.AUTH_ATTACH, sqlite3.AUTH_DETACH, sqlite3.AUTH_TRANSACTION, sqlite3.AUTH_SAVEPOINT:
		return false
	}
	return write
}

// Run implements database.Database.
func (d *Database) Run(ctx context.Context, s database.Statement, to database.Sink) (changed int64, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.o.Time, &database.Error{Code: "SQLITE_INTERRUPT", Message: fmt.Sprintf("the statement took longer than %s and was ended", d.o.Time)})
	defer cancel()
	select {
	case d.slots <- struct{}{}:
		defer func() { <-d.slots }()
	case <-ctx.Done():
		return 0, fmt.Errorf("no connection was free in time: %w", ctx.Err())
	}
	conn, err := d.connect(ctx, s.Write)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	stmt, err := one(conn, s)
	if err != nil {
		return 0, explained(ctx, err)
	}
	defer func() { _ = stmt.Close() }() // it repeats what the last step said
	if err := rows(stmt, to); err != nil {
		return 0, explained(ctx, err)
	}
	if s.Write {
		changed = conn.TotalChanges()
	}
	return changed, nil
}

// one prepares a statement, and binds its values. A second statement behind it is an error.
func one(conn *sqlite3.Conn, s database.Statement) (*sqlite3.Stmt, error) {
	stmt, tail, err := conn.Prepare(s.SQL)
	if err != nil {
		return nil, err
	}
	if stmt == nil {
		return nil, errors.New("there is no statement")
	}
	fail := func(err error) (*sqlite3.Stmt, error) { return nil, errors.Join(err, stmt.Close()) }
	if second, _, err := conn.Prepare(tail); err != nil || second != nil {
		if second != nil {
			err = second.Close()
		}
		_ = err // what is wrong with it does not matter
		return fail(errors.New("there is more than one statement; a call runs one"))
	}
	if !s.Write && !stmt.ReadOnly() {
		return fail(&database.Error{Code: "SQLITE_READONLY", Message: "the statement would write"})
	}
	if n := stmt.BindCount(); n != len(s.Args) {
		return fail(fmt.Errorf("the statement has %d parameters (?), and %d values are there", n, len(s.Args)))
	}
	for i, v := range s.Args {
		if err := bind(stmt, i+1, v); err != nil {
			return fail(err)
		}
	}
	return stmt, nil
}

// maxExact is the largest number that a float64 has with all integers below it.
const maxExact = 1 << 53

func bind(stmt *sqlite3.Stmt, i int, v any) error {
	switch v := v.(type) {
	case string:
		return stmt.BindText(i, v)
	case bool:
		return stmt.BindBool(i, v)
	case float64:
		if v == math.Trunc(v) && math.Abs(v) <= maxExact {
			return stmt.BindInt64(i, int64(v))
		}
		return stmt.BindFloat(i, v)
	}
	return stmt.BindNull(i)
}

// rows passes on what a statement returns. A declared type is no promise in SQLite, so each value says what it is.
func rows(stmt *sqlite3.Stmt, to database.Sink) error {
	columns := make([]database.Column, stmt.ColumnCount())
	for i := range columns {
		columns[i] = database.Column{Name: stmt.ColumnName(i), Type: strings.ToLower(stmt.ColumnDeclType(i)), Kind: database.Dynamic}
	}
	if err := to.Columns(columns); err != nil {
		return err
	}
	values := make([]any, len(columns))
	for stmt.Step() {
		for i := range values {
			switch stmt.ColumnType(i) {
			case sqlite3.INTEGER:
				values[i] = stmt.ColumnInt64(i)
			case sqlite3.FLOAT:
				values[i] = stmt.ColumnFloat(i)
			case sqlite3.TEXT:
				values[i] = stmt.ColumnText(i)
			case sqlite3.BLOB:
				values[i] = stmt.ColumnBlob(i, nil)
			default:
				values[i] = nil
			}
		}
		if more, err := to.Row(values); err != nil || !more {
			return err
		}
	}
	return stmt.Err()
}

// explained is an error as agents read it.
func explained(ctx context.Context, err error) error {
	var code sqlite3.ErrorCode
	known := errors.As(err, &code)
	if ctx.Err() != nil && (!known || code == sqlite3.INTERRUPT) {
		if cause := context.Cause(ctx); !errors.Is(cause, ctx.Err()) {
			return cause
		}
		return fmt.Errorf("the statement was ended: %w", ctx.Err())
	}
	if !known {
		return err
	}
	e := &database.Error{Code: name(code), Message: strings.TrimPrefix(err.Error(), "sqlite3: ")}
	var said *sqlite3.Error
	if errors.As(err, &said) && said.SQL() != "" {
		e.Detail = fmt.Sprintf("at %.80q", said.SQL())
	}
	return e
}

func name(c sqlite3.ErrorCode) string {
	switch c {
	case sqlite3.READONLY:
		return "SQLITE_READONLY"
	case sqlite3.AUTH:
		return "SQLITE_AUTH"
	case sqlite3.BUSY:
		return "SQLITE_BUSY"
	case sqlite3.CONSTRAINT:
		return "SQLITE_CONSTRAINT"
	case sqlite3.NOMEM:
		return "SQLITE_NOMEM"
	case sqlite3.TOOBIG:
		return "SQLITE_TOOBIG"
	case sqlite3.INTERRUPT:
		return "SQLITE_INTERRUPT"
	}
	return fmt.Sprintf("SQLite %d", c)
}
