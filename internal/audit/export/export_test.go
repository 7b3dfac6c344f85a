package export

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/skerry-sandbox/skerry/internal/audit"
)

// actions are all that package audit and its records declare.
func actions(t *testing.T) (all []string) {
	t.Helper()
	for _, path := range []string{"../actions.go", "../record/record.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(v.Names[0].Name, "Action") {
				text, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, text)
			}
			return true
		})
	}
	if len(all) < 40 {
		t.Fatalf("%d actions", len(all))
	}
	return all
}

func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	s, err := jsonschema.NewCompiler().Compile("testdata/ocsf/schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func valid(s *jsonschema.Schema, text []byte) error {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return s.Validate(v)
}

// records are one of each action and phase, full and nearly empty.
func records(t *testing.T) (all []audit.Record) {
	for _, action := range append(actions(t), "an_action_of_tomorrow") {
		for _, phase := range []string{audit.PhaseAttempt, audit.PhaseResult} {
			bare := audit.Record{ID: "0198c0de-0000-7000-8000-000000000000", Time: time.UnixMilli(1_780_000_000_123).UTC(), Action: action, Phase: phase}
			full := bare
			full.Writer, full.Seq, full.Prev, full.Hash = "w1", 7, strings.Repeat("0", 64), strings.Repeat("ab", 32)
			full.Tenant, full.User, full.Thread, full.Sandbox, full.Exec, full.Parent = "acme", "ann", "main", "sb-1", "0198c0de-0000-7000-8000-000000000001", "0198c0de-0000-7000-8000-000000000002"
			full.Subject, full.Args, full.ArgsHash, full.OutHash = "fs__read_file", json.RawMessage(`{"path":"/a"}`), strings.Repeat("cd", 32), strings.Repeat("ef", 32)
			full.Outcome, full.Detail, full.Millis, full.BytesIn, full.BytesOut, full.Why = "denied", "a rule", 12, 3, 4, json.RawMessage(`{"rule":"r1"}`)
			full.Auth, full.KeyID, full.Role, full.Actor, full.RequestID, full.TraceID = "key", "k1", "agent", "backend", "req-1", strings.Repeat("1", 32)
			full.Source, full.UserAgent = "[2001:db8::1]:4711", "curl/8"
			v4 := full
			v4.Source, v4.Outcome = "192.0.2.7", "ok"
			all = append(all, bare, full, v4)
		}
	}
	return all
}

// TestOCSF: every action's event is valid by the published schema, and the schema refuses what is wrong.
func TestOCSF(t *testing.T) {
	s := schema(t)
	classes := map[int]bool{}
	for _, r := range records(t) {
		e := OCSF(r)
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if err := valid(s, text); err != nil {
			t.Errorf("%s: %v\n%s", r.Action, err, text)
		}
		classes[e.ClassUID] = true
	}
	if len(classes) != 6 {
		t.Errorf("classes %v", classes)
	}
	for name, spoil := range map[string]func(map[string]any){
		"a class that there is not": func(e map[string]any) { e["class_uid"] = 6099 },
		"without its time":          func(e map[string]any) { delete(e, "time") },
		"another type":              func(e map[string]any) { e["type_uid"] = 600202 },
		"what no class has":         func(e map[string]any) { e["thread"] = "main" },
		"another severity":          func(e map[string]any) { e["severity_id"] = 42 },
		"an actor who is nobody":    func(e map[string]any) { e["actor"] = map[string]any{} },
		"a bad address":             func(e map[string]any) { e["src_endpoint"] = map[string]any{"ip": "nowhere at all"} },
	} {
		text, _ := json.Marshal(OCSF(audit.Record{Action: audit.ActionToolCall, User: "ann", Time: time.Now()}))
		var e map[string]any
		if err := json.Unmarshal(text, &e); err != nil {
			t.Fatal(err)
		}
		spoil(e)
		text, _ = json.Marshal(e)
		if valid(s, text) == nil {
			t.Errorf("%s is valid: %s", name, text)
		}
	}
}

// TestTable: the documented table is the one of the code.
func TestTable(t *testing.T) {
	text, err := os.ReadFile("../../../docs/audit.md")
	if err != nil {
		t.Fatal(err)
	}
	for action, k := range kinds {
		found := false
		for line := range strings.SplitSeq(string(text), "\n") {
			found = found || strings.HasPrefix(line, "| "+strconv.Itoa(k.class.uid)+" "+k.class.name+" |") && strings.Contains(line, "`"+action+"`")
		}
		if !found {
			t.Errorf("docs/audit.md does not say that %s is %d %s", action, k.class.uid, k.class.name)
		}
	}
}

// TestCSV: what was written is read back, a row a record, and no cell is a formula.
func TestCSV(t *testing.T) {
	evil := []string{
		"=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =cmd|' /C calc'!A0", "＝1", "%0A", `"=1"`, "a,b", "a\r\nb", `say "hi"`, "", "plain", "\u00a0=1",
	}
	var out bytes.Buffer
	w, err := New("csv", &out)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range evil {
		if err := w.Write(audit.Record{Subject: s, Detail: s, User: s, Action: "exec"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&out).ReadAll()
	if err != nil || len(rows) != len(evil)+1 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for i, row := range rows[1:] {
		if len(row) != len(columns) {
			t.Fatalf("row %d has %d cells", i, len(row))
		}
		for _, cell := range row {
			if text := strings.TrimLeft(cell, " \u00a0"); text != "" && strings.ContainsRune("=+-@\t\r\n", rune(text[0])) {
				t.Errorf("cell %q of %q", cell, evil[i])
			}
		}
		want := strings.ReplaceAll(evil[i], "\r\n", "\n") // as the reader has it
		if got := strings.TrimPrefix(row[10], "'"); strings.Trim(got, "'") != strings.Trim(want, "'") {
			t.Errorf("subject %q, want %q", row[10], want)
		}
	}
}

func TestJSONL(t *testing.T) {
	var out bytes.Buffer
	w, err := New("jsonl", &out)
	if err != nil {
		t.Fatal(err)
	}
	all := records(t)
	for _, r := range all {
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	for i, line := range bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n")) {
		var r audit.Record
		if err := json.Unmarshal(line, &r); err != nil || r.Action != all[i].Action || r.Phase != all[i].Phase {
			t.Fatalf("line %d: %s, %v", i, line, err)
		}
	}
	if _, err := New("xml", &out); err == nil {
		t.Error("xml is a format")
	}
}
