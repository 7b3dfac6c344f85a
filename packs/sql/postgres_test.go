package sqlpack_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/ipc"

	sqlpack "github.com/skerry-sandbox/skerry/packs/sql"
	"github.com/skerry-sandbox/skerry/packs/sql/pgtest"
)

// store is what the tests read. The role agents may read all, and even write, so that only the transaction holds it back.
const store = `CREATE TYPE mood AS ENUM ('good', 'bad');
CREATE SCHEMA crm;
CREATE TABLE crm.customer (id bigint PRIMARY KEY, name text NOT NULL, mood mood, extra jsonb);
COMMENT ON TABLE crm.customer IS 'Who buys';
COMMENT ON COLUMN crm.customer.name IS 'as on bills';
CREATE TABLE sale (id bigserial PRIMARY KEY, customer_id bigint REFERENCES crm.customer, amount numeric(12,2), paid boolean DEFAULT false,
 at timestamptz, day date, took time, ratio double precision, small smallint, note bytea, tags text[]);
CREATE INDEX ON sale (customer_id);
INSERT INTO crm.customer VALUES (1, 'Ada', 'good', '{"a": [1, null]}'), (9007199254740993, 'Bo''b', NULL, NULL);
INSERT INTO sale (customer_id, amount, paid, at, day, took, ratio, small, note, tags) VALUES
 (1, 12.50, true, '2026-01-02 03:04:05.678901+02', '2026-01-02', '03:04:05.5', 0.1, 7, '\x00ff', '{a,"b c"}'), (1, -3, false, NULL, NULL, NULL, 'NaN', NULL, NULL, NULL);
CREATE FUNCTION pay() RETURNS int LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN UPDATE sale SET paid = true; RETURN 1; END $$;
CREATE FUNCTION unlock() RETURNS int LANGUAGE plpgsql AS $$ BEGIN SET TRANSACTION READ WRITE; UPDATE sale SET paid = true; RETURN 1; END $$;
CREATE PROCEDURE escape() LANGUAGE plpgsql AS $$ BEGIN COMMIT; SET TRANSACTION READ WRITE; UPDATE sale SET paid = true; COMMIT; END $$;
CREATE ROLE agents LOGIN;
CREATE ROLE signaller LOGIN; GRANT pg_signal_backend TO signaller;
CREATE ROLE program LOGIN; GRANT pg_execute_server_program TO program;
CREATE ROLE indirect LOGIN NOINHERIT; GRANT program TO indirect;
GRANT USAGE ON SCHEMA crm TO agents; GRANT ALL ON ALL TABLES IN SCHEMA public, crm TO agents; GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO agents; GRANT CREATE ON SCHEMA public TO agents;
ANALYZE;`

func storePack(t *testing.T, server pgtest.Server, role string, write bool, l sqlpack.Limits) *sqlpack.Pack {
	t.Helper()
	return newPack(t, sqlpack.Config{Databases: map[string]sqlpack.Source{"store": {URL: server.URL(role, "postgres"), Write: write}}, Limits: l})
}

// TestPostgres has one server for all that is tested with PostgreSQL.
func TestPostgres(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, store)
	t.Run("read", func(t *testing.T) { reads(t, server) })
	t.Run("export", func(t *testing.T) { exports(t, server) })
	t.Run("attacks", func(t *testing.T) { attacked(t, server) })
	t.Run("state", func(t *testing.T) { stateless(t, server) })
	t.Run("limits", func(t *testing.T) { limited(t, server) })
	t.Run("roles", func(t *testing.T) { roles(t, server) })
	t.Run("write", func(t *testing.T) { writes(t, server) })
	t.Run("secrets", func(t *testing.T) { secrets(t, server) })
}

func reads(t *testing.T, server pgtest.Server) {
	p := storePack(t, server, "agents", false, sqlpack.Limits{})
	var tables sqlpack.Tables
	if e := call(t, p, "list_tables", map[string]any{}, &tables); e != "" || len(tables.Tables) != 2 {
		t.Fatalf("%s %+v", e, tables)
	}
	customer := tables.Tables[0]
	if customer.Table != "crm.customer" || customer.Comment != "Who buys" || *customer.Rows != 2 || customer.Columns[1] != "name text not null -- as on bills" || customer.Columns[2] != "mood crm.mood" && customer.Columns[2] != "mood mood" {
		t.Errorf("%+v", customer)
	}
	if keys := fmt.Sprint(tables.Tables[1].Keys); !strings.Contains(keys, "FOREIGN KEY (customer_id) REFERENCES crm.customer(id)") {
		t.Error(keys)
	}
	for name, n := range map[string]int{"customer": 1, "crm.customer": 1, "public.sale": 2} {
		var d struct{ Indexes []string }
		if e := call(t, p, "describe_table", map[string]any{"table": name}, &d); e != "" || len(d.Indexes) != n {
			t.Errorf("%s: %s %+v", name, e, d)
		}
	}
	var rows sqlpack.Rows
	if e := call(t, p, "query", map[string]any{"sql": "SELECT * FROM crm.customer WHERE name = $1 OR id = $2 OR extra @> $3 ORDER BY id", "params": []any{"Ada", "9007199254740993", map[string]any{"a": []any{1}}}}, &rows); e != "" {
		t.Fatal(e)
	}
	raw, _ := json.Marshal(rows)
	want := `{"columns":[{"name":"id","type":"int8"},{"name":"name","type":"text"},{"name":"mood","type":"mood"},{"name":"extra","type":"jsonb"}],"rows":[{"extra":{"a":[1,null]},"id":1,"mood":"good","name":"Ada"},{"extra":null,"id":"9007199254740993","mood":null,"name":"Bo'b"}],"truncated":false}`
	if string(raw) != want {
		t.Errorf("%s", raw)
	}
	rows = sqlpack.Rows{}
	if e := call(t, p, "query", map[string]any{"sql": "SELECT generate_series(1, 1e12::bigint) AS n", "max_rows": 3}, &rows); e != "" || len(rows.Rows) != 3 || !rows.Truncated {
		t.Errorf("%s %+v", e, rows)
	}
	rows = sqlpack.Rows{}
	if e := call(t, p, "query", map[string]any{"sql": "SELECT $1::int + $2::int AS n, $3::bool AS b, $4::text AS gone, $5::text AS sql", "params": []any{1, 2.0, true, nil, "'; DROP TABLE sale; --"}}, &rows); e != "" || rows.Rows[0]["n"] != 3.0 || rows.Rows[0]["b"] != true || rows.Rows[0]["sql"] != "'; DROP TABLE sale; --" {
		t.Errorf("%s %+v", e, rows)
	}
	if e := call(t, p, "query", map[string]any{"sql": "SELECT nme FROM crm.customer"}, nil); e != `column "nme" does not exist (SQLSTATE 42703) at character 8; hint: Perhaps you meant to reference the column "customer.name".` {
		t.Error(e)
	}
	if e := call(t, p, "explain", map[string]any{"sql": "SELECT nme FROM crm.customer"}, nil); !strings.Contains(e, "at character 8") {
		t.Error(e)
	}
	r, err := p.Call(t.Context(), "explain", map[string]any{"sql": "SELECT * FROM sale WHERE customer_id = $1", "params": []any{1}, "analyze": true})
	if err != nil || !strings.Contains(r.Text(), "Execution Time") {
		t.Errorf("%v %s", err, r.Text())
	}
}

func exports(t *testing.T, server pgtest.Server) {
	p := storePack(t, server, "agents", false, sqlpack.Limits{})
	_, content := file(t, p, map[string]any{"sql": "SELECT amount, paid, at, day, took, ratio, note, tags FROM sale ORDER BY id"})
	want := "amount,paid,at,day,took,ratio,note,tags\n12.50,true,2026-01-02 01:04:05.678901+00,2026-01-02,03:04:05.5,0.1,AP8=,\"{a,\"\"b c\"\"}\"\n-3.00,false,,,,NaN,,\n"
	if string(content) != want {
		t.Errorf("%s", content)
	}
	_, content = file(t, p, map[string]any{"sql": "SELECT * FROM sale ORDER BY id", "format": "arrow"})
	reader, err := ipc.NewFileReader(bytes.NewReader(content))
	must(t, err)
	schema := reader.Schema().String()
	for _, want := range []string{"amount: type=decimal", "at: type=timestamp[us, tz=UTC]", "day: type=date32", "took: type=time64[us]", "small: type=int16", "note: type=binary", "tags: type=utf8"} {
		if !strings.Contains(schema, want) {
			t.Errorf("%s is not in %s", want, schema)
		}
	}
	b, err := reader.RecordBatch(0)
	must(t, err)
	text, err := b.MarshalJSON()
	must(t, err)
	for _, want := range []string{`"amount":"12.5"`, `"at":"2026-01-02T01:04:05.678901Z"`, `"day":"2026-01-02"`, `"took":"03:04:05.5"`, `"note":"AP8="`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s is not in %s", want, text)
		}
	}
	f, content := file(t, p, map[string]any{"sql": "SELECT i AS id, 'customer ' || i AS name, i * 0.25::float8 AS amount, now() AS at FROM generate_series(1, 100000) AS i", "format": "arrow"})
	reader, err = ipc.NewFileReader(bytes.NewReader(content))
	must(t, err)
	rows := int64(0)
	for i := range reader.NumRecords() {
		b, err := reader.RecordBatch(i)
		must(t, err)
		rows += b.NumRows()
	}
	if rows != 100_000 || f.Rows != 100_000 {
		t.Errorf("%d rows, and %+v", rows, f)
	}
	t.Logf("100,000 rows are %d bytes of Arrow", len(content))
	if e := call(t, p, "export", map[string]any{"sql": "SELECT 'infinity'::timestamptz AS at", "format": "arrow"}, nil); !strings.Contains(e, `"at"`) || !strings.Contains(e, "cast the column") {
		t.Error(e)
	}
	if e := call(t, p, "export", map[string]any{"sql": "SELECT md5(i::text) FROM generate_series(1, 900000) i"}, nil); !strings.Contains(e, "more than 11534336 bytes") {
		t.Error(e)
	}
}

// hostile are statements that want to write, or to stay. The role has all rights on the tables.
var hostile = []string{
	"DELETE FROM sale", "INSERT INTO sale DEFAULT VALUES", "UPDATE sale SET paid = true", "TRUNCATE sale", "DROP TABLE sale", "CREATE TABLE x (a int)", "CREATE TEMP TABLE x (a int)",
	"WITH a AS (DELETE FROM sale RETURNING *) SELECT * FROM a", "SELECT * INTO x FROM sale", "SELECT * FROM sale FOR UPDATE", "SELECT pay()", "SELECT unlock()", "CALL escape()",
	"EXPLAIN ANALYZE DELETE FROM sale", "SELECT nextval('sale_id_seq')", "SELECT setval('sale_id_seq', 1)", "COPY sale FROM STDIN", "COPY sale FROM '/etc/passwd'", "COPY (SELECT 1) TO '/tmp/skerry-attack'",
	"COPY (SELECT 1) TO PROGRAM 'touch /tmp/skerry-attack'", "SELECT lo_export(1, '/tmp/skerry-attack')", "SELECT lo_import('/etc/passwd')", "SELECT pg_read_file('/etc/passwd')",
	"SELECT pg_ls_dir('/')", "SELECT pg_create_physical_replication_slot('x')", "SELECT pg_reload_conf()", "ALTER SYSTEM SET work_mem = '1GB'", "ALTER ROLE agents SET work_mem = '1GB'", "GRANT ALL ON sale TO public",
	"COMMENT ON TABLE sale IS 'x'", "VACUUM sale", "REINDEX TABLE sale", "CLUSTER", "REFRESH MATERIALIZED VIEW x", "CREATE EXTENSION dblink", "LOAD 'plpgsql'",
	"SELECT 1; DELETE FROM sale", "COMMIT; DELETE FROM sale", "ROLLBACK; DELETE FROM sale; BEGIN", "SET TRANSACTION READ WRITE; DELETE FROM sale", "SELECT 1;;DELETE FROM sale",
	"SET TRANSACTION READ WRITE", "SELECT set_config('transaction_read_only', 'off', false)", "SELECT set_config('transaction_read_only', 'off', true) FROM (SELECT 1) x",
	"BEGIN READ WRITE; DELETE FROM sale", "BEGIN READ WRITE", "DO $$ BEGIN SET TRANSACTION READ WRITE; DELETE FROM sale; END $$", "DO $$ BEGIN COMMIT; DELETE FROM sale; END $$",
	"DO $$ BEGIN ROLLBACK; SET default_transaction_read_only = off; DELETE FROM sale; COMMIT; END $$", "DO $$ BEGIN PERFORM set_config('transaction_read_only', 'off', true); DELETE FROM sale; END $$",
	"SET SESSION AUTHORIZATION postgres", "SET ROLE postgres", "PREPARE TRANSACTION 'x'", "EXECUTE skerry", "PREPARE skerry AS DELETE FROM sale",
}

// tolerated are statements that pass, and whose effect ends with the call.
var tolerated = []string{
	"COMMIT", "ROLLBACK", "COMMIT AND CHAIN", "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE", "SET default_transaction_read_only = off", "SET statement_timeout = 0", "SET search_path = crm",
	"SELECT set_config('default_transaction_read_only', 'off', false)", "PREPARE w AS DELETE FROM sale", "SELECT pg_advisory_lock(1)", "LISTEN x", "NOTIFY x", "SELECT lo_from_bytea(0, 'x')", "SELECT pg_notify('x', 'y')",
	"DECLARE c CURSOR WITH HOLD FOR SELECT 1", "COPY sale TO STDOUT", "SAVEPOINT a", "DISCARD PLANS", "DEALLOCATE ALL", "SET SESSION AUTHORIZATION agents", "RESET ALL", "SELECT 1;", "SHOW ALL", "TABLE sale",
}

// picture is all that an attack could change.
const picture = `SELECT md5(concat((SELECT string_agg(s::text, '|' ORDER BY id) FROM sale s), (SELECT last_value FROM sale_id_seq), (SELECT count(*) FROM pg_class), (SELECT count(*) FROM pg_largeobject_metadata),
 (SELECT string_agg(relacl::text, '|' ORDER BY oid) FROM pg_class), (SELECT string_agg(setconfig::text, '') FROM pg_db_role_setting), (SELECT count(*) FROM pg_replication_slots), (SELECT count(*) FROM pg_prepared_xacts)))`

func attacked(t *testing.T, server pgtest.Server) {
	for _, write := range []bool{false, true} { // the tools that read must not write, either way
		p := storePack(t, server, "agents", write, sqlpack.Limits{Connections: 1, Time: 5 * time.Second})
		before := server.Admin(t, picture)
		for _, tool := range []string{"query", "export", "explain"} {
			for _, sql := range hostile {
				in := map[string]any{"sql": sql}
				e := call(t, p, tool, in, nil)
				if e == "" && tool != "explain" {
					t.Errorf("%s took %s", tool, sql)
				}
				if tool == "explain" {
					in["analyze"] = true
					_ = call(t, p, tool, in, nil)
				}
			}
			for _, sql := range tolerated {
				_ = call(t, p, tool, map[string]any{"sql": sql}, nil)
				// The next call on the same connection is as if there had been none.
				if e := call(t, p, tool, map[string]any{"sql": "WITH a AS (DELETE FROM sale RETURNING 1) SELECT * FROM a"}, nil); tool != "explain" && !strings.Contains(e, "read-only transaction") {
					t.Errorf("after %s: %s", sql, e)
				}
				if e := call(t, p, tool, map[string]any{"sql": "EXECUTE w"}, nil); !strings.Contains(e, "does not exist") {
					t.Errorf("after %s: %s", sql, e)
				}
			}
		}
		if after := server.Admin(t, picture); after != before {
			t.Errorf("with write %v something changed", write)
		}
	}
	if _, err := os.Stat("/tmp/skerry-attack"); err == nil {
		t.Error("a file was written")
	}
}

// stateless: a call sees nothing of the one before on the same connection.
func stateless(t *testing.T, server pgtest.Server) {
	p := storePack(t, server, "agents", false, sqlpack.Limits{Connections: 1})
	state := func() string {
		var rows sqlpack.Rows
		if e := call(t, p, "query", map[string]any{"sql": `SELECT current_setting('search_path') AS path, current_setting('default_transaction_read_only') AS ro, current_setting('TimeZone') AS zone,
 current_setting('my.x', true) AS x, (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory') AS locks, (SELECT count(*) FROM pg_prepared_statements WHERE name <> 'skerry') AS prepared, (SELECT count(*) FROM pg_cursors WHERE is_holdable) AS cursors`}, &rows); e != "" {
			t.Fatal(e)
		}
		delete(rows.Rows[0], "x")
		return fmt.Sprint(rows.Rows)
	}
	before := state()
	for _, sql := range append([]string{"SET TimeZone = 'Asia/Tokyo'", "SELECT set_config('my.x', 'y', false)", "SELECT pg_advisory_lock(2)"}, tolerated...) {
		_ = call(t, p, "query", map[string]any{"sql": sql}, nil)
		if after := state(); after != before {
			t.Errorf("after %s: %s, not %s", sql, after, before)
		}
	}
}

// active counts statements of the pack that run.
func active(t *testing.T, server pgtest.Server) string {
	t.Helper()
	return server.Admin(t, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'skerry-pack-sql' AND query LIKE '%pg_sleep%' AND state = 'active'")
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for began := time.Now(); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func limited(t *testing.T, server pgtest.Server) {
	p := storePack(t, server, "agents", false, sqlpack.Limits{Time: time.Second, Connections: 2})
	if e := call(t, p, "query", map[string]any{"sql": "SELECT pg_sleep(600)"}, nil); !strings.Contains(e, "57014") || !strings.Contains(e, "longer than 1s") {
		t.Errorf("time: %s", e)
	}
	if e := call(t, p, "query", map[string]any{"sql": "SELECT set_config('statement_timeout', '0', false), pg_sleep(600)"}, nil); !strings.Contains(e, "57014") {
		t.Errorf("time without a limit: %s", e)
	}
	long := storePack(t, server, "agents", false, sqlpack.Limits{Time: 10 * time.Minute})
	if e := call(t, long, "query", map[string]any{"sql": "SELECT repeat('x', 100000000)"}, nil); !strings.Contains(e, "64 MiB") {
		t.Errorf("a large row: %.200s", e)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		r, err := long.Call(ctx, "query", map[string]any{"sql": "SELECT pg_sleep(600)"})
		if err != nil || !r.IsError || !strings.Contains(r.Text(), "cancelled") {
			t.Errorf("a call that is cancelled: %v %+v", err, r)
		}
	})
	eventually(t, "the statement runs", func() bool { return active(t, server) == "1" })
	cancel()
	wg.Wait()
	eventually(t, "the statement is cancelled in the database", func() bool { return active(t, server) == "0" })
	for range 8 {
		wg.Go(func() {
			if e := call(t, long, "query", map[string]any{"sql": "SELECT count(*), pg_sleep(0.05) FROM sale"}, nil); e != "" {
				t.Error(e)
			}
		})
	}
	wg.Wait()
	if n := server.Admin(t, "SELECT count(*) <= 6 FROM pg_stat_activity WHERE application_name = 'skerry-pack-sql'"); n != "t" {
		t.Error("there are more connections than two packs may have")
	}
	server.Admin(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'skerry-pack-sql'")
	eventually(t, "a database that ended the connections is used again", func() bool { return call(t, long, "query", map[string]any{"sql": "SELECT 1"}, nil) == "" })
}

// roles: a role that a read-only transaction does not bound is refused, with what to do.
func roles(t *testing.T, server pgtest.Server) {
	for role, why := range map[string]string{"postgres": "a superuser", "signaller": "pg_signal_backend", "program": "pg_execute_server_program", "indirect": "pg_execute_server_program"} {
		p := storePack(t, server, role, false, sqlpack.Limits{})
		e := call(t, p, "query", map[string]any{"sql": "SELECT 1"}, nil)
		if !strings.Contains(e, why) || !strings.Contains(e, "CREATE ROLE agents") {
			t.Errorf("%s: %s", role, e)
		}
		if wrong := p.Check(t.Context()); len(wrong) != 1 {
			t.Errorf("%s: %v", role, wrong)
		}
	}
}

func writes(t *testing.T, server pgtest.Server) {
	p := newPack(t, sqlpack.Config{Databases: map[string]sqlpack.Source{"store": {URL: server.URL("agents", "postgres"), Write: true}, "mirror": {URL: server.URL("agents", "postgres")}}})
	var c sqlpack.Changed
	if e := call(t, p, "execute", map[string]any{"database": "store", "sql": "INSERT INTO sale (customer_id, amount) VALUES ($1, $2) RETURNING amount", "params": []any{1, 4.5}}, &c); e != "" || c.Changed != 1 || c.Rows.Rows[0]["amount"] != "4.50" {
		t.Errorf("%s %+v", e, c)
	}
	if got := server.Admin(t, "SELECT count(*) FROM sale WHERE amount = 4.5"); got != "1" {
		t.Errorf("%s rows", got)
	}
	for database, sql := range map[string]string{"mirror": "DELETE FROM sale", "store": "DELETE FROM sale; DELETE FROM crm.customer"} {
		if e := call(t, p, "execute", map[string]any{"database": database, "sql": sql}, nil); e == "" {
			t.Errorf("execute took %s in %s", sql, database)
		}
	}
	if e := call(t, p, "execute", map[string]any{"database": "store", "sql": "INSERT INTO sale (customer_id) VALUES (77)"}, nil); !strings.Contains(e, "23503") || !strings.Contains(e, "detail: Key (customer_id)=(77)") {
		t.Error(e)
	}
}

// secrets: a password is in no error, whatever is wrong.
func secrets(t *testing.T, server pgtest.Server) {
	hba := filepath.Join(server.Dir, "data", "pg_hba.conf")
	must(t, os.WriteFile(hba, []byte("local all postgres trust\nlocal all all scram-sha-256\n"), 0o644))
	server.Admin(t, "ALTER ROLE agents PASSWORD 'sesame'; SELECT pg_reload_conf()")
	password := filepath.Join(t.TempDir(), "password")
	source := sqlpack.Source{URL: server.URL("agents", "postgres"), PasswordFile: password}
	ask := func(text string) string {
		must(t, os.WriteFile(password, []byte(text), 0o600))
		p := newPack(t, sqlpack.Config{Databases: map[string]sqlpack.Source{"store": source}})
		e := call(t, p, "query", map[string]any{"sql": "SELECT current_user"}, nil)
		if strings.Contains(e, "sesame") || strings.Contains(fmt.Sprint(p.Check(t.Context())), "sesame") {
			t.Errorf("the password is in %s", e)
		}
		return e
	}
	eventually(t, "the server asks for passwords", func() bool { return strings.Contains(ask("sesame2\n"), "28P01") })
	if e := ask("sesame\n"); e != "" {
		t.Error(e)
	}
}
