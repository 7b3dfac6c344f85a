package archtest

import (
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// designsPage has a row for each feature of the designs.
const designsPage = "docs/designs.md"

// The states of a feature. A feature that is not just done says what stands in its place, or what is
// missing.
const (
	stateDone      = "done"
	stateOtherwise = "done otherwise"
	stateMissing   = "missing"
)

var (
	designState = regexp.MustCompile(`^(done|(?:done otherwise|missing)(?: \(\d+\.\d+\))?: .+)$`)
	testSpans   = regexp.MustCompile("^`[^`]+`(?:, `[^`]+`)*$")
)

// designRow is one feature.
type designRow struct {
	line                          int
	number, feature, state, tests string
}

func (r designRow) String() string { return fmt.Sprintf("%s:%d", designsPage, r.line) }

// kind is the state without its clause.
func (r designRow) kind() string {
	kind, _, _ := strings.Cut(r.state, ":")
	kind, _, _ = strings.Cut(kind, " (")
	return kind
}

// readDesigns returns the features of the page, and the counts at its top.
func readDesigns(page string) (rows []designRow, counts map[string]string) {
	counts = map[string]string{}
	for i, line := range strings.Split(page, "\n") {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| # |") || strings.HasPrefix(line, "| state |") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch len(cells) {
		case 2:
			counts[cells[0]] = cells[1]
		case 4:
			rows = append(rows, designRow{i + 1, cells[0], cells[1], cells[2], cells[3]})
		default:
			rows = append(rows, designRow{line: i + 1})
		}
	}
	return rows, counts
}

// checkDesigns: rows are numbered through, their states are of the closed set, the tests that they name are
// there, and the counts at the top are right.
func checkDesigns(root fs.FS) []string {
	page, err := fs.ReadFile(root, designsPage)
	if err != nil {
		return []string{err.Error()}
	}
	rows, said := readDesigns(string(page))
	var bad []string
	counted := map[string]int{stateDone: 0, stateOtherwise: 0, stateMissing: 0}
	for i, r := range rows {
		switch {
		case r.number == "":
			bad = append(bad, fmt.Sprintf("%s: a row has four cells: #, feature, state, test; write a | of code in words", r))
			continue
		case r.number != strconv.Itoa(i+1):
			bad = append(bad, fmt.Sprintf("%s: row %s is number %d", r, r.number, i+1))
		case r.feature == "":
			bad = append(bad, fmt.Sprintf("%s: the row names no feature", r))
		}
		if !designState.MatchString(r.state) {
			bad = append(bad, fmt.Sprintf("%s: state %q: want done, done otherwise: WHAT, or missing: WHAT", r, r.state))
			continue
		}
		counted[r.kind()]++
		bad = append(bad, checkDesignTests(root, r)...)
	}
	for _, state := range slices.Sorted(maps.Keys(counted)) {
		if want := strconv.Itoa(counted[state]); said[state] != want {
			bad = append(bad, fmt.Sprintf("%s: the table at the top has %q rows that are %s, want %s", designsPage, said[state], state, want))
		}
	}
	return bad
}

// checkDesignTests: a feature that is done names tests that are there, one that is missing names none.
func checkDesignTests(root fs.FS, r designRow) []string {
	if r.kind() == stateMissing {
		if r.tests != "" {
			return []string{fmt.Sprintf("%s: it is missing, and names a test", r)}
		}
		return nil
	}
	if !testSpans.MatchString(r.tests) {
		return []string{fmt.Sprintf("%s: tests %q: want `FOLDER TestName` or `FILE name`, with commas between", r, r.tests)}
	}
	var bad []string
	for _, test := range strings.Split(strings.Trim(r.tests, "`"), "`, `") {
		if where, name, _ := strings.Cut(test, " "); !testIsThere(root, where, name) {
			bad = append(bad, fmt.Sprintf("%s: there is no test %q", r, test))
		}
	}
	return bad
}

// testIsThere looks for a test of a Go package, or in a file of another language.
func testIsThere(root fs.FS, where, name string) bool {
	if !strings.HasSuffix(where, ".py") && !strings.HasSuffix(where, ".ts") {
		return strings.HasPrefix(name, "Test") && declaredTest(root, where, name)
	}
	text, err := fs.ReadFile(root, where)
	if err != nil || name == "" {
		return false
	}
	return strings.Contains(string(text), "def "+name+"(") || strings.Contains(string(text), `test("`+name+`"`)
}

func declaredTest(root fs.FS, dir, name string) bool {
	files, err := fs.Glob(root, dir+"/*_test.go")
	if err != nil {
		return false
	}
	return slices.ContainsFunc(files, func(p string) bool {
		text, err := fs.ReadFile(root, p)
		return err == nil && strings.Contains(string(text), "\nfunc "+name+"(t *testing.T)")
	})
}

// TestDesigns: the page about the designs names tests that are there, and counts right.
func TestDesigns(t *testing.T) {
	house, _ := openHouse(t)
	report(t, checkDesigns(house))
	page, err := fs.ReadFile(house, designsPage)
	if err != nil {
		t.Fatal(err)
	}
	rows, counts := readDesigns(string(page))
	if len(rows) < 150 {
		t.Errorf("only %d rows: the page was not read", len(rows))
	}
	t.Logf("%d rows: %v", len(rows), counts)
}

// TestTheDesignsChecker: a good page passes, and each wrong row is found.
func TestTheDesignsChecker(t *testing.T) {
	const top = "# The designs\n\n| state | rows |\n|---|---|\n| done | 2 |\n| done otherwise | 1 |\n| missing | 2 |\n\n## One\n\n| # | feature | state | test |\n|---|---|---|---|\n"
	const second = "\n## Two\n\n| # | feature | state | test |\n|---|---|---|---|\n"
	const py, ts = "`sdk/a.py test_a`, `internal/x TestX`", "`sdk/a.ts works, too`"
	rows := []string{
		"| 1 | a | done | `internal/x TestX` |\n", "| 2 | b | done | " + py + " |\n", "| 3 | c | done otherwise: by d | " + ts + " |\n",
		"| 4 | e | missing: nothing does it | |\n", "| 5 | f | missing (17.3): nothing does it | |\n",
	}
	tree := func(page string) fs.FS {
		return fstest.MapFS{
			designsPage: {Data: []byte(page)}, "internal/x/x_test.go": {Data: []byte("package x\n\nfunc TestX(t *testing.T) {}\n\nfunc TestMain(m *testing.M) {}\n")},
			"internal/x/x.go": {Data: []byte("package x\n\nfunc TestY(t *testing.T) {}\n")}, "internal/y/y_test.go": {Data: []byte("package y\n\nfunc TestOther(t *testing.T) {}\n")},
			"sdk/a.py": {Data: []byte("async def test_a(x):\n    pass  # test_b\n")}, "sdk/a.ts": {Data: []byte("test(\"works, too\", () => {});\n")},
		}
	}
	page := top + rows[0] + rows[1] + second + rows[2] + rows[3] + rows[4]
	if bad := checkDesigns(tree(page)); len(bad) != 0 {
		t.Fatalf("a good page: %q", bad)
	}
	for name, c := range map[string]struct{ old, new, says string }{
		"a test that is gone":       {"`internal/x TestX` |\n| 2", "`internal/x TestGone` |\n| 2", `"internal/x TestGone"`},
		"of another package":        {"`internal/x TestX` |\n| 2", "`internal/y TestX` |\n| 2", `"internal/y TestX"`},
		"a folder that is not":      {"`internal/x TestX` |\n| 2", "`internal/z TestX` |\n| 2", `"internal/z TestX"`},
		"half of a name":            {"`internal/x TestX` |\n| 2", "`internal/x Test` |\n| 2", `"internal/x Test"`},
		"a function of the product": {"`internal/x TestX` |\n| 2", "`internal/x TestY` |\n| 2", `"internal/x TestY"`},
		"what runs no test":         {"`internal/x TestX` |\n| 2", "`internal/x TestMain` |\n| 2", `"internal/x TestMain"`},
		"a folder alone":            {"`internal/x TestX` |\n| 2", "`internal/x` |\n| 2", `"internal/x"`},
		"the second of two":         {"`, `internal/x TestX`", "`, `internal/x TestGone`", `"internal/x TestGone"`},
		"a name in Python":          {"sdk/a.py test_a", "sdk/a.py test_b", `"sdk/a.py test_b"`},
		"a name in TypeScript":      {"sdk/a.ts works, too", "sdk/a.ts works", `"sdk/a.ts works"`},
		"a file that is not":        {"sdk/a.ts works", "sdk/b.ts works", `"sdk/b.ts works, too"`},
		"no code span":              {ts, "sdk/a.ts", "want `FOLDER TestName`"},
		"done without a test":       {"done | `internal/x TestX` |\n| 2", "done | |\n| 2", "want `FOLDER TestName`"},
		"missing with a test":       {"it | |\n| 5", "it | `internal/x TestX` |\n| 5", "names a test"},
		"another state":             {"missing (17.3)", "planned (17.3)", "planned"},
		"missing without a clause":  {"missing: nothing does it", "missing", `state "missing"`},
		"otherwise, by nothing":     {"done otherwise: by d", "done otherwise:", "done otherwise: WHAT"},
		"done, but":                 {"done | `internal/x TestX` |\n| 2", "done: half | `internal/x TestX` |\n| 2", "done: half"},
		"a point of no issue":       {"missing (17.3)", "missing (soon)", "missing (soon)"},
		"a number twice":            {"| 3 | c", "| 2 | c", "row 2 is number 3"},
		"a number begun anew":       {"| 5 | f", "| 1 | f", "row 1 is number 5"},
		"no feature":                {"| 1 | a |", "| 1 | |", "names no feature"},
		"a cell too few":            {"| 5 | f | missing (17.3): nothing does it | |", "| 5 | f | missing (17.3): nothing does it |", "four cells"},
		"a wrong count":             {"| done | 2 |", "| done | 3 |", `"3" rows that are done, want 2`},
		"a count that is not there": {"| done otherwise | 1 |\n", "", `"" rows that are done otherwise, want 1`},
	} {
		changed := strings.Replace(page, c.old, c.new, 1)
		if changed == page {
			t.Errorf("%s: the page has no %q", name, c.old)
		}
		if bad := strings.Join(checkDesigns(tree(changed)), "\n"); !strings.Contains(bad, c.says) {
			t.Errorf("%s: %q does not say %q", name, bad, c.says)
		}
	}
	if bad := checkDesigns(fstest.MapFS{}); len(bad) != 1 {
		t.Errorf("no page: %q", bad)
	}
}
