package schema

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// alternatives returns a schema whose check takes 2^depth steps, with around put around it.
func alternatives(depth int, around string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"type":"object","properties":{"x":%s},"$defs":{`, around)
	for i := range depth {
		fmt.Fprintf(&b, `"a%d":{"anyOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]},`, i, i+1, i+1)
	}
	fmt.Fprintf(&b, `"a%d":{"type":"string"}}}`, depth)
	return b.String()
}

// TestSchemaThatTakesForever: without a count of steps each of these would run for years.
func TestSchemaThatTakesForever(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"a":`, 60) + "{}" + strings.Repeat("}", 60)
	for name, c := range map[string]struct{ schema, input string }{
		"alternatives": {alternatives(60, `{"$ref":"#/$defs/a0"}`), `{"x":1}`},
		"negated":      {alternatives(60, `{"not":{"$ref":"#/$defs/a0"}}`), `{"x":1}`},
		"condition":    {alternatives(60, `{"if":{"$ref":"#/$defs/a0"},"then":false}`), `{"x":1}`},
		"draft-07":     {strings.Replace(alternatives(60, `{"$ref":"#/$defs/a0"}`), `{`, `{"$schema":"http://json-schema.org/draft-07/schema#",`, 1), `{"x":1}`},
		"in a pattern": {alternatives(60, `{"patternProperties":{".":{"$ref":"#/$defs/a0"}}}`), `{"x":{"y":1}}`},
		"recursive":    {`{"anyOf":[{"properties":{"a":{"$ref":"#"}},"required":["y"]},{"properties":{"a":{"$ref":"#"}},"required":["z"]}]}`, deep},
	} {
		t.Run(name, func(t *testing.T) {
			v := New([]byte(c.schema), Input)
			began := time.Now()
			args, problem, err := v.Check("t", []byte(c.input))
			if !errors.Is(problem, errSpent) || err != nil || string(args) != c.input {
				t.Errorf("%v, %v, %s", problem, err, args)
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it took %s", took)
			}
			// The next call has all its steps again.
			if _, problem, err := v.Check("t", []byte(`{}`)); problem != nil || name != "recursive" && err != nil {
				t.Errorf("afterwards: %v, %v", problem, err)
			}
		})
	}
}

func TestNumbersOutOfRange(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{`{}`, `{"properties":{"x":{"minimum":1}}}`, `{"properties":{"x":{"items":{"multipleOf":3}}}}`} {
		v := New([]byte(schema), Input)
		for _, number := range []string{"1e99999999", "-1E-99999999", "1e99999999999999999999", "1e401", strings.Repeat("7", 1001)} {
			for input, field := range map[string]string{`{"x":` + number + `}`: "input.x", `{"x":[3,` + number + `]}`: "input.x[1]"} {
				_, problem, err := v.Check("t", []byte(input))
				var e *sandbox.Error
				if problem != nil || !errors.As(err, &e) || e.Kind != sandbox.Invalid || e.Fields[0].Name != field {
					t.Errorf("%s: %v, %v", schema, problem, err)
				}
			}
		}
	}
	v := New([]byte(`{"properties":{"x":{"multipleOf":0.01,"maximum":1e300}}}`), Input)
	if _, problem, err := v.Check("t", []byte(`{"x":9007199254740993.25}`)); problem != nil || err != nil {
		t.Error(problem, err)
	}
}

// TestPatternThatTakesForever: a pattern of a schema is work of its length times that of the text.
func TestPatternThatTakesForever(t *testing.T) {
	t.Parallel()
	text := `{"x":"` + strings.Repeat("b", 10<<20) + `"}`
	for name, pattern := range map[string]string{
		"large": strings.Repeat("(?:.{0,999}a)?", 70) + "z", "slow": strings.Repeat("(?:.{0,999}a)?", 3) + "z", "long": strings.Repeat("(?:.{0,9}a)?", 2000),
	} {
		v := New([]byte(`{"properties":{"x":{"pattern":"`+pattern+`"}}}`), Input)
		_, problem, err := v.Check("t", []byte(text))
		if err != nil || (problem != nil) != (name == "slow") {
			t.Errorf("%s: %v, %v", name, problem, err)
		}
	}
	v := New([]byte(`{"properties":{"x":{"pattern":"^[a-z]+$"}}}`), Input)
	if _, _, err := v.Check("t", []byte(`{"x":"A"}`)); sandbox.KindOf(err) != sandbox.Invalid {
		t.Error("a pattern that does not fit:", err)
	}
	if _, problem, err := v.Check("t", []byte(`{"x":"`+strings.Repeat("b", 1<<20)+`"}`)); problem != nil || err != nil {
		t.Error("a pattern that fits a megabyte:", problem, err)
	}
}

// TestManyValues: the two bytes of a value take a hundred of memory.
func TestManyValues(t *testing.T) {
	t.Parallel()
	many := []byte(`{"x":[` + strings.Repeat("[],", maxInputValues) + `0]}`)
	v := New([]byte(`{}`), Result)
	if _, _, err := v.Check("t", many); sandbox.KindOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), "values") {
		t.Errorf("arguments: %v", err)
	}
	if wrong, problem := v.Fields(many); len(wrong) > 0 || problem == nil {
		t.Errorf("a result: %v, %v", wrong, problem)
	}
}

// TestSchemasOfNoUse: the server is left to judge, and nothing outside of the schema is read.
func TestSchemasOfNoUse(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{
		`{"$ref":"http://127.0.0.1:1/x"}`, `{"$ref":"file:///etc/passwd"}`, `{"$schema":"http://example.org/none"}`,
		`{"type":7}`, `{"$dynamicRef":"#"}`, `{"$schema":"https://json-schema.org/draft/2019-09/schema","$recursiveRef":"#"}`,
		`{"properties":{"x":{"maximum":1e9999999}}}`, strings.Repeat(`{"not":`, 200) + `{}` + strings.Repeat(`}`, 200),
	} {
		v := New([]byte(schema), Input)
		if _, problem, err := v.Check("t", []byte(`{"x":1}`)); problem == nil || err != nil {
			t.Errorf("%.80s: %v, %v", schema, problem, err)
		}
	}
	v := New([]byte(`{}`), Input)
	if _, _, err := v.Check("t", []byte(`{"x":`+strings.Repeat("[", 600)+strings.Repeat("]", 600)+`}`)); sandbox.KindOf(err) != sandbox.Invalid {
		t.Error("deep arguments:", err)
	}
	if _, _, err := v.Check("t", []byte(`{"x":"`+strings.Repeat("a", maxInputBytes)+`"}`)); sandbox.KindOf(err) != sandbox.Invalid {
		t.Error("large arguments:", err)
	}
}

// TestCountingChangesNothing: formats are still looked at where the draft says so. All validators share a
// meta-schema, so a schema that refers to it does not count as two.
func TestCountingChangesNothing(t *testing.T) {
	t.Parallel()
	draft7 := `{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"x":{"format":"ipv4"},"r":{"format":"regex"}}}`
	v := New([]byte(draft7), Input)
	if _, _, err := v.Check("t", []byte(`{"x":"1.2.3"}`)); sandbox.KindOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), "input.x '1.2.3' is not valid ipv4") {
		t.Error(err)
	}
	if _, problem, err := v.Check("t", []byte(`{"x":"1.2.3.4","r":"(?<=a)b"}`)); problem != nil || err != nil {
		t.Error(problem, err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			v := New([]byte(`{"properties":{"x":{"$ref":"http://json-schema.org/draft-07/schema#"}}}`), Input)
			for range 20 {
				if _, _, err := v.Check("t", []byte(`{"x":{"type":7}}`)); sandbox.KindOf(err) != sandbox.Invalid {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestTooDeep(t *testing.T) {
	t.Parallel()
	nested := func(n int) string { return strings.Repeat(`{"a":[`, n) + strings.Repeat("]}", n) }
	for text, want := range map[string]bool{
		``: false, `{"type":"object"}`: false, nested(maxSchemaDepth / 2): false, nested(maxSchemaDepth/2 + 1): true,
		`{"a":"` + strings.Repeat("[{", 200) + `"}`: false, `{"a":"\"","b":"` + strings.Repeat(`\\[`, 200) + `"}`: false,
		`[` + strings.TrimSuffix(strings.Repeat(`{"a":{}},`, 200), ",") + `]`: false,
	} {
		if got := TooDeep([]byte(text)); got != want {
			t.Errorf("%.60s: %t", text, got)
		}
	}
}
