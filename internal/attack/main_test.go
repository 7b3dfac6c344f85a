package attack

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// update writes what was seen into docs/security.md instead of comparing it.
var update = flag.Bool("update", false, "write the results into docs/security.md")

const documentPath = "../../docs/security.md"

// bin is where TestMain built skerry, skerry-sandboxd and the probe.
var bin string

// programs are what the tests run, by the names that they get in bin.
var programs = map[string]string{
	"skerry":          "../../cmd/skerry",
	"skerry-sandboxd": "../../cmd/skerry-sandboxd",
	"probe":           "./probe",
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	err := build()
	defer os.RemoveAll(bin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := errors.Join(stopContainerd(), seen.save()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

func build() (err error) {
	if bin, err = os.MkdirTemp("", "skerry-attack-"); err != nil {
		return err
	}
	if err := os.Chmod(bin, 0o755); err != nil { //nolint:gosec // the sandbox's uid runs programs from here
		return err
	}
	for name, source := range programs {
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(bin, name), source)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return nil
}

// ledger holds what the document says and what the tests of this run saw.
type ledger struct {
	once      sync.Once
	err       error
	mu        sync.Mutex
	document  string
	says, saw Cells
}

var seen ledger

// load reads the document, once. It is called in tests only: go test then knows that their results depend on
// it, and does not take old ones for those of a document that changed.
func (l *ledger) load() error {
	l.once.Do(func() {
		var data []byte
		if data, l.err = os.ReadFile(documentPath); l.err != nil {
			return
		}
		l.document, l.saw = string(data), make(Cells)
		l.says, l.err = Parse(l.document)
	})
	return l.err
}

// save writes what was seen over what the document said, when asked to.
func (l *ledger) save() error {
	if !*update || len(l.saw) == 0 {
		return nil
	}
	cells := maps.Clone(l.says)
	maps.Copy(cells, l.saw)
	text, err := RenderInside(l.document, cells)
	if err != nil {
		return err
	}
	return os.WriteFile(documentPath, []byte(text), 0o644) //nolint:gosec // a document
}

// byName returns the row of an attack: a test that makes an attack which the table lacks is wrong.
func byName(t testing.TB, name string) Attack {
	t.Helper()
	for _, a := range All() {
		if a.Name == name {
			return a
		}
	}
	t.Fatalf("no attack %q in the table", name)
	return Attack{}
}

// record reports how an attack was refused at a place: an error unless the table accepts that refusal and
// the document says the same. refusal "" means that the attack succeeded.
func record(t testing.TB, name, place, refusal, evidence string) {
	t.Helper()
	a := byName(t, name)
	switch {
	case refusal == "":
		t.Errorf("%s on %s SUCCEEDED: %s", name, place, evidence)
		refusal = "SUCCEEDED"
	case !a.Accepts(refusal, place):
		t.Errorf("%s on %s: refused by %q (%s), want %s", name, place, refusal, evidence, a.expected())
	}
	seen.compare(t, a, place, a.Result(refusal, place))
}

// recordControl reports that the control of an attack succeeded, or why there cannot be one: lacking is
// "" or the error by which the kernel says so, which the table must name.
func recordControl(t testing.TB, name string, succeeded bool, lacking, evidence string) {
	t.Helper()
	a := byName(t, name)
	result := Succeeds
	switch {
	case succeeded:
	case lacking != "" && contains(a.Absent, lacking):
		result = Lacking + " (" + lacking + ")"
	default:
		t.Errorf("the control of %s did not succeed, so nothing shows what holds the attack off: %s %s", name, lacking, evidence)
		result = "FAILED"
	}
	seen.compare(t, a, ControlPlace, result)
}

func contains(list []string, s string) bool {
	for _, v := range list {
		if v == s {
			return true
		}
	}
	return false
}

// compare checks a result against the document. Kernels differ in which of several fitting errors they
// return, and in which attacks they know at all. So the document may show another error that the table
// accepts.
func (l *ledger) compare(t testing.TB, a Attack, place, result string) {
	t.Helper()
	must(t, l.load())
	l.mu.Lock()
	defer l.mu.Unlock()
	key := Key{a.Name, place}
	l.saw[key] = result
	says := l.says[key]
	if *update || says == result {
		return
	}
	if a.Accepts(refusalOf(says), place) && a.Accepts(refusalOf(result), place) || place == ControlPlace && says != "" {
		t.Logf("%s on %s: docs/security.md says %q, here it is %q", a.Name, place, says, result)
		return
	}
	t.Errorf("%s on %s: docs/security.md says %q, seen is %q (go test ./internal/attack -update writes what is seen)", a.Name, place, says, result)
}
