// Package postgres runs statements in PostgreSQL. A statement that may not write runs in a read-only transaction that is
// always rolled back. It is sent by the extended protocol, of which the server takes one statement at a time.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/skerry-sandbox/skerry/packs/sql/database"
)

const (
	maxMessage  = 64 << 20 // bytes of one row
	connectTime = 10 * time.Second
	resetTime   = 5 * time.Second
	cancelTime  = 5 * time.Second // after which a server that does not cancel loses the connection
	idleTime    = 5 * time.Minute
	spareTime   = 250 * time.Millisecond // the server's own timeout comes so much later than ours
	statement   = "skerry"               // its name on the connection
	cancelled   = "57014"                // SQLSTATE of a statement that was cancelled
)

// Options say which database, and how much of it.
type Options struct {
	URL         string
	Password    string // "": that of the URL, or of what libpq reads
	Write       bool
	Connections int
	Time        time.Duration // of a statement
	Log         *slog.Logger
}

// Database is one PostgreSQL database.
type Database struct {
	o     Options
	pool  *pgxpool.Pool
	types *pgtype.Map
}

// Open returns a database. It connects when it is first used.
func Open(o Options) (*Database, error) {
	c, err := pgxpool.ParseConfig(o.URL)
	if err != nil {
		return nil, errors.New("the URL cannot be read: it is postgres://USER@HOST:PORT/DATABASE, with the options of libpq") // the error has parts of it
	}
	if o.Password != "" {
		c.ConnConfig.Password = o.Password
	}
	c.MaxConns, c.MaxConnIdleTime = int32(o.Connections), idleTime //nolint:gosec // it is checked
	c.ConnConfig.ConnectTimeout = connectTime
	c.ConnConfig.MaxProtocolMessageBodyLen = maxMessage
	c.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: cancelTime}
	}
	for name, value := range map[string]string{
		"application_name": "skerry-pack-sql", "TimeZone": "UTC", "DateStyle": "ISO, YMD", "IntervalStyle": "iso_8601", "bytea_output": "hex",
		"default_transaction_read_only": onOff(!o.Write), "idle_in_transaction_session_timeout": ms(o.Time + connectTime), "client_encoding": "UTF8",
		"lock_timeout": ms(o.Time), "statement_timeout": ms(o.Time + spareTime),
	} {
		c.ConnConfig.RuntimeParams[name] = value
	}
	c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error { return checkRole(ctx, conn.PgConn()) }
	c.AfterRelease = reset
	pool, err := pgxpool.NewWithConfig(context.Background(), c)
	if err != nil {
		return nil, errors.New("the options of the connection are wrong")
	}
	return &Database{o: o, pool: pool, types: pgtype.NewMap()}, nil
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}

func ms(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// roleQuery finds what a read-only transaction does not bound: each is a way to change things outside of it.
const roleQuery = `SELECT r.rolname, concat_ws(', ', CASE WHEN r.rolsuper THEN 'a superuser' END, CASE WHEN r.rolreplication THEN 'allowed to replicate' END,
 (SELECT string_agg('a member of ' || g.rolname, ', ' ORDER BY g.rolname) FROM pg_catalog.pg_roles g
  WHERE (g.rolsuper OR g.rolname IN ('pg_execute_server_program', 'pg_write_server_files', 'pg_read_server_files', 'pg_signal_backend'))
  AND NOT r.rolsuper AND g.oid <> r.oid AND pg_catalog.pg_has_role(r.oid, g.oid, 'MEMBER')))
FROM pg_catalog.pg_roles r WHERE r.rolname IN (session_user, current_user)`

// errRole is a role that no transaction bounds.
type errRole struct{ role, why string }

func (e errRole) Error() string {
	return fmt.Sprintf("the role %q is %s, so a read-only transaction does not bound it. Use a role of its own: CREATE ROLE agents LOGIN PASSWORD '…'; GRANT pg_read_all_data TO agents; ALTER ROLE agents SET default_transaction_read_only = on", e.role, e.why)
}

func checkRole(ctx context.Context, conn *pgconn.PgConn) error {
	r := conn.ExecParams(ctx, roleQuery, nil, nil, nil, nil).Read()
	if r.Err != nil {
		return r.Err
	}
	for _, row := range r.Rows {
		if why := string(row[1]); why != "" {
			return errRole{string(row[0]), why}
		}
	}
	return nil
}

// reset takes from a connection what a call has left on it: settings, prepared statements, locks, temporary tables.
func reset(conn *pgx.Conn) bool {
	ctx, cancel := context.WithTimeout(context.Background(), resetTime)
	defer cancel()
	return conn.PgConn().TxStatus() == 'I' && conn.PgConn().ExecParams(ctx, "DISCARD ALL", nil, nil, nil, nil).Read().Err == nil
}

// Dialect implements database.Database.
func (d *Database) Dialect() string { return "postgresql" }

// Close implements database.Database.
func (d *Database) Close() { d.pool.Close() }

// Ping implements database.Database.
func (d *Database) Ping(ctx context.Context) error {
	conn, err := d.acquire(ctx)
	if err == nil {
		conn.Release()
	}
	return err
}

func (d *Database) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	conn, err := d.pool.Acquire(ctx)
	var role errRole
	var said *pgconn.PgError
	switch {
	case err == nil:
		return conn, nil
	case errors.As(err, &role):
		return nil, role
	case ctx.Err() != nil:
		return nil, fmt.Errorf("no connection was free in time: %w", ctx.Err())
	case errors.As(err, &said):
		d.o.Log.Warn("the database refuses the connection", "code", said.Code, "error", said.Message)
		return nil, &database.Error{Code: "SQLSTATE " + said.Code, Message: "the database refuses the connection"} // its text names roles and hosts
	}
	d.o.Log.Warn("the database is not reached", "error", strings.ReplaceAll(err.Error(), d.secret(), "***"))
	return nil, errors.New("the database is not reached; the log of the pack says why")
}

// secret is the password, or a text that nothing has.
func (d *Database) secret() string {
	if p := d.pool.Config().ConnConfig.Password; p != "" {
		return p
	}
	return "\x00"
}

// Run implements database.Database.
func (d *Database) Run(ctx context.Context, s database.Statement, to database.Sink) (changed int64, err error) {
	conn, err := d.acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	pg := conn.Conn().PgConn()
	if err := d.begin(ctx, pg, s.Write); err != nil {
		return 0, d.explained(ctx, pg, err)
	}
	tag, err := d.one(ctx, pg, s, to)
	end := "ROLLBACK"
	if err == nil && s.Write {
		end = "COMMIT"
	}
	// The call may be over. The transaction ends nevertheless; a connection on which it does not is closed.
	ectx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resetTime)
	defer cancel()
	ended := pg.ExecParams(ectx, end, nil, nil, nil, nil).Read()
	if err == nil && s.Write {
		if ended.Err == nil && ended.CommandTag.String() != "COMMIT" {
			ended.Err = errors.New("the transaction was rolled back")
		}
		err = ended.Err
	}
	if err != nil {
		return 0, d.explained(ctx, pg, err)
	}
	return tag.RowsAffected(), nil
}

// begin opens the transaction. The query in it takes the snapshot, after which the server lets no statement make a read-only
// transaction one that writes. The texts are ours, so they may come together.
func (d *Database) begin(ctx context.Context, pg *pgconn.PgConn, write bool) error {
	limit := d.o.Time
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline))
	}
	mode := "READ ONLY"
	if write {
		mode = "READ WRITE"
	}
	text := fmt.Sprintf("BEGIN TRANSACTION %s; SET LOCAL statement_timeout = %d; SELECT 1", mode, max((limit+spareTime).Milliseconds(), 1))
	_, err := pg.Exec(ctx, text).ReadAll()
	return err
}

// one runs one statement. The sink may end it: then the server is told to cancel it.
func (d *Database) one(ctx context.Context, pg *pgconn.PgConn, s database.Statement, to database.Sink) (pgconn.CommandTag, error) {
	prepared, err := pg.Prepare(ctx, statement, s.SQL, nil)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	if n := len(prepared.ParamOIDs); n != len(s.Args) {
		return pgconn.CommandTag{}, fmt.Errorf("the statement has %d parameters ($1, $2, …), and %d values are there", n, len(s.Args))
	}
	columns, err := d.columns(ctx, pg, prepared.Fields)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	if err := to.Columns(columns); err != nil {
		return pgconn.CommandTag{}, err
	}
	qctx, cancel := context.WithTimeout(ctx, d.o.Time)
	defer cancel()
	rows := pg.ExecPrepared(qctx, statement, args(s.Args), nil, nil)
	values := make([]any, len(columns))
	for rows.NextRow() {
		for i, raw := range rows.Values() {
			if values[i], err = value(columns[i].Kind, raw); err != nil {
				cancel()
				_, _ = rows.Close() // it says that it was cancelled
				return pgconn.CommandTag{}, fmt.Errorf("column %q: %w", columns[i].Name, err)
			}
		}
		more, err := to.Row(values)
		if err != nil || !more {
			cancel()
			_, _ = rows.Close() // the same
			return pgconn.CommandTag{}, err
		}
	}
	return rows.Close()
}

// args are the values as the texts that the server reads.
func args(list []any) [][]byte {
	out := make([][]byte, len(list))
	for i, v := range list {
		switch v := v.(type) {
		case nil:
		case string:
			out[i] = []byte(v)
		case bool:
			out[i] = strconv.AppendBool(nil, v)
		case float64:
			out[i] = strconv.AppendFloat(nil, v, 'f', -1, 64)
		}
		if out[i] == nil && v != nil {
			out[i] = []byte{} // nil is NULL
		}
	}
	return out
}

// explained is an error as agents read it.
func (d *Database) explained(ctx context.Context, pg *pgconn.PgConn, err error) error {
	var said *pgconn.PgError
	known := errors.As(err, &said)
	switch {
	case ctx.Err() != nil && (!known || said.Code == cancelled):
		return fmt.Errorf("the statement was cancelled: %w", ctx.Err())
	case known && said.Code == cancelled, errors.Is(err, context.DeadlineExceeded):
		return &database.Error{Code: "SQLSTATE " + cancelled, Message: fmt.Sprintf("the statement took longer than %s and was cancelled", d.o.Time)}
	case known:
		return &database.Error{Code: "SQLSTATE " + said.Code, Message: said.Message, Detail: said.Detail, Hint: said.Hint, Position: int(said.Position)}
	case pg.IsClosed():
		d.o.Log.Warn("the connection was lost", "error", strings.ReplaceAll(err.Error(), d.secret(), "***"))
		return errors.New("the connection to the database was lost, or a row had more than 64 MiB")
	}
	return err
}

// Explain implements database.Database.
func (d *Database) Explain(ctx context.Context, s database.Statement, analyze bool) (string, error) {
	before := "EXPLAIN (VERBOSE, ANALYZE " + onOff(analyze) + ") "
	var lines plan
	_, err := d.Run(ctx, database.Statement{SQL: before + s.SQL, Args: s.Args}, &lines)
	var said *database.Error
	if errors.As(err, &said) && said.Position > len(before) {
		said.Position -= len(before)
	}
	return strings.Join(lines, "\n"), err
}

// plan collects lines of a plan.
type plan []string

const maxPlan = 1000 // lines

func (*plan) Columns([]database.Column) error { return nil }

func (p *plan) Row(values []any) (bool, error) {
	line, _ := values[0].(string)
	*p = append(*p, line)
	return len(*p) < maxPlan, nil
}
