package e2e

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/skerry-sandbox/skerry/packs/sql/pgtest"
	sandboxtemplates "github.com/skerry-sandbox/skerry/sandbox-templates"
)

const salesDatabase = `CREATE TABLE sale (id bigint PRIMARY KEY, customer text NOT NULL, amount numeric(12,2) NOT NULL, at timestamptz NOT NULL);
INSERT INTO sale SELECT i, 'customer ' || i % 1000, i % 400 * 0.25, '2026-01-01 00:00Z'::timestamptz + i * interval '1 minute' FROM generate_series(1, 100000) AS i;
CREATE ROLE agents LOGIN; GRANT pg_read_all_data TO agents; GRANT DELETE, INSERT, UPDATE ON sale TO agents; ANALYZE;`

// salesSum is what all amounts of salesDatabase are together.
const salesSum = "4987500.00"

// sshKey makes a key, adds it for a pack, and returns its file.
func (s *server) sshKey(pack string) string {
	t := s.t
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	block, err := ssh.MarshalPrivateKey(private, "")
	must(t, err)
	signer, err := ssh.NewSignerFromSigner(private)
	must(t, err)
	file := filepath.Join(t.TempDir(), "key")
	must(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	must(t, os.WriteFile(file+".pub", bytes.TrimSpace(ssh.MarshalAuthorizedKey(signer.PublicKey())), 0o600))
	s.cli("packs", "keys", "add", file+".pub", "--packs", pack)
	return file
}

// sqlPack builds and runs the program, and returns once the server has its tools. It stops with SIGTERM, as a service does.
func (s *server) sqlPack(env []string, args ...string) {
	t := s.t
	t.Helper()
	program := filepath.Join(t.TempDir(), "skerry-pack-sql")
	build := exec.Command("go", "build", "-trimpath", "-o", program, "../../packs/sql/skerry-pack-sql")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	log := &syncBuffer{}
	cmd := exec.Command(program, append(args, "--server", s.url)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), log, log
	must(t, cmd.Start())
	t.Cleanup(func() {
		must(t, cmd.Process.Signal(syscall.SIGTERM))
		if err := cmd.Wait(); err != nil {
			t.Errorf("the pack ended with %v", err)
		}
		if t.Failed() {
			t.Logf("log of the pack:\n%s", log)
		}
		if strings.Contains(log.String(), "sesame") {
			t.Errorf("the password is in the log:\n%s", log)
		}
	})
	eventually(t, "the pack is connected", func() bool { return strings.Contains(string(s.do("GET", "/api/packs", nil).body), `"connected"`) })
}

// TestSQLPack: the program skerry-pack-sql gives agents a real PostgreSQL. It proves itself by an SSH key. Code in the
// sandbox asks by typed wrappers, exports 100,000 rows into the thread's files and reads them there. A model gets the path
// and not the bytes. The audit log has the calls and the file, the policy denies execute, and what code tries to write through
// query is refused by the database.
func TestSQLPack(t *testing.T) {
	whole(t, TestPacks)
	t.Parallel()
	postgres := pgtest.Start(t, salesDatabase)
	hba := "local all postgres trust\nlocal all all scram-sha-256\n"
	postgres.Admin(t, "ALTER ROLE agents PASSWORD 'sesame'")
	must(t, os.WriteFile(filepath.Join(postgres.Dir, "data", "pg_hba.conf"), []byte(hba), 0o644))
	postgres.Admin(t, "SELECT pg_reload_conf()")
	o := options{templates: map[string]string{}}
	_, err := os.Stat(filepath.Join(cache(), "images/data/rootfs/usr/bin/python3"))
	withArrow := err == nil
	if withArrow {
		text, err := sandboxtemplates.FS.ReadFile("data.yaml")
		must(t, err)
		o.templates["data.yaml"] = string(text)
	}
	o.policy = "version: 1\ndefault: allow\nrules:\n- {id: no-writes, effect: deny, match: {server: sql, tool: execute}, when: args.database == 'sales'}\n"
	s := start(t, o)
	url := strings.Replace(postgres.URL("agents", "postgres"), "agents@", "agents:sesame@", 1)
	s.sqlPack([]string{"SALES_URL=" + url}, "--ssh-key", s.sshKey("sql"), "--database", "sales=env:SALES_URL", "--write", "sales")
	s.acquire("t", "direct")
	before := postgres.Admin(t, "SELECT md5(string_agg(s::text, '' ORDER BY id)) FROM sale s")

	r := s.run("t", "execute_code", map[string]any{"language": "typescript", "code": `import * as sql from './servers/sql';
const r = await sql.query({ sql: 'SELECT customer, sum(amount) AS total FROM sale WHERE id <= $1 GROUP BY 1 ORDER BY 1', params: [2] });
console.log(r.columns.map((c) => c.type).join(), r.rows.length, r.rows[0].total, r.truncated);`})
	if r.Stdout != "text,numeric 2 0.25 false\n" {
		t.Errorf("query from TypeScript: %+v", r)
	}
	s.exportsCSV()
	if withArrow {
		s.exportsArrow()
	}
	s.sqlAttacks()
	if after := postgres.Admin(t, "SELECT md5(string_agg(s::text, '' ORDER BY id)) FROM sale s"); after != before {
		t.Error("the table is another one")
	}
	s.sqlDirect()
}

// exportsCSV: code exports and reads in one go. The record of the file is below that of the call.
func (s *server) exportsCSV() {
	t := s.t
	t.Helper()
	r := s.run("t", "execute_code", map[string]any{"language": "python", "timeout": 120, "code": `import csv, decimal
from servers.sql import export
f = export(sql="SELECT * FROM sale", name="sales")
with open(f["path"]) as file:
    rows = list(csv.DictReader(file))
print(f["rows"], len(rows), sum(decimal.Decimal(r["amount"]) for r in rows), f["path"].startswith("/mnt/user-data/workspace/tool-results/sales-"))`})
	if r.Stdout != "100000 100000 "+salesSum+" True\n" {
		t.Fatalf("export from Python: %+v", r)
	}
	records := s.records("action=file_change&thread=t", "result")
	found := 0
	for _, rec := range records {
		if text := fmt.Sprint(rec); strings.Contains(text, "tool-results/sales-") && strings.Contains(text, "the tool returned it") {
			found++
		}
	}
	if found != 1 {
		t.Errorf("%d records of the file among %v", found, records)
	}
	if n := len(s.records("action=tool_call&thread=t&tool=sql__export", "result")); n != 1 {
		t.Errorf("%d records of the export", n)
	}
}

// exportsArrow: the template data reads the file with pyarrow, with types.
func (s *server) exportsArrow() {
	t := s.t
	t.Helper()
	if a := s.do("PUT", "/api/threads/arrow/sandbox", map[string]any{"template": "data", "wait_s": 120}); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	r := s.run("arrow", "execute_code", map[string]any{"language": "python", "timeout": 120, "code": `import pyarrow as pa, pyarrow.compute as pc
from servers.sql import export
f = export(sql="SELECT * FROM sale", format="arrow")
with pa.memory_map(f["path"]) as source:
    table = pa.ipc.open_file(source).read_all()
print(table.num_rows, pc.sum(table["amount"]), table.schema.field("at").type, table.schema.field("amount").type, table["at"][0])`})
	if r.Stdout != "100000 "+salesSum+" timestamp[us, tz=UTC] decimal128(12, 2) 2026-01-01 00:01:00+00:00\n" {
		t.Errorf("export as Arrow: %+v", r)
	}
}

// sqlAttacks: the role has rights to write, and yet nothing that code sends to query, export or explain writes. execute is
// denied by the policy.
func (s *server) sqlAttacks() {
	t := s.t
	t.Helper()
	r := s.run("t", "execute_code", map[string]any{"language": "python", "code": `from servers.sql import query, export, explain, execute
for tool in (query, export, lambda sql: explain(sql=sql, analyze=True)):
    for sql in ("DELETE FROM sale", "COMMIT; DELETE FROM sale", "WITH a AS (DELETE FROM sale RETURNING 1) SELECT * FROM a", "DO $$ BEGIN COMMIT; DELETE FROM sale; END $$", "BEGIN READ WRITE; DELETE FROM sale", "COPY (SELECT 1) TO PROGRAM 'true'"):
        try:
            tool(sql=sql)
            print("took", sql)
        except Exception as e:
            if "SQLSTATE" not in str(e): print(sql, e)
try:
    execute(database="sales", sql="DELETE FROM sale")
    print("took execute")
except Exception as e:
    print("no-writes" in str(e))`})
	if r.Stdout != "True\n" {
		t.Errorf("attacks: %+v", r)
	}
	if n := len(s.records("action=tool_call&thread=t&tool=sql__execute&outcome=denied", "result")); n != 1 {
		t.Errorf("%d records of the denied call", n)
	}
}

// sqlDirect: a model that calls export itself gets a link to the file, and no base64.
func (s *server) sqlDirect() {
	t := s.t
	t.Helper()
	a := s.do("POST", "/api/threads/t/tools/call", map[string]any{"tool": "sql__export", "content": true, "input": map[string]any{"sql": "SELECT 'seven' AS n", "format": "jsonl"}})
	var made struct {
		Result struct{ Path string }
	}
	a.into(t, &made)
	if a.status != 200 || !strings.Contains(string(a.body), `"resource_link"`) || strings.Contains(string(a.body), `"blob"`) {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if got := s.ok("t", "cat "+made.Result.Path); got != "{\"n\":\"seven\"}\n" {
		t.Errorf("%q", got)
	}
}
