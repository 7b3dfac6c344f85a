package schema

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// A schema comes from a stranger, and so do the arguments. Together they could keep a processor busy
// for days: alternatives within alternatives are tried in all combinations, and numbers such as
// 1e999999 are worked out digit by digit. What is checked is therefore bounded beforehand by its shape
// (bounded), and while it is checked by a count of steps (budget).
const (
	// maxSteps is what one validation may cost. A step is a schema that is applied to a value; real
	// arguments take a few hundred, and the most take well below a second.
	maxSteps       = 1 << 17
	maxSchemaDepth = 128
	maxInputDepth  = 512
	maxInputBytes  = 16 << 20
	maxInputValues = 250_000 // decoded, each takes up to a hundred bytes
	maxDigits      = 1000    // of a number
	maxExponent    = 400     // of ten; the numbers that programs can hold end at 308
)

// budget counts the steps of one validation.
type budget struct {
	left  int
	spent bool
}

var errSpent = errors.New("the schema takes too long to check")

// install makes every schema that can be reached from s count. The library has no hook for that but
// formats, which it checks before it goes on to the schemas within. An error says that the steps of s
// cannot be counted.
func (b *budget) install(s *jsonschema.Schema) error {
	seen := map[*jsonschema.Schema]bool{}
	todo := []*jsonschema.Schema{s}
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if s == nil || s.Bool != nil || seen[s] {
			continue
		}
		seen[s] = true
		if s.DynamicRef != nil || s.RecursiveRef != nil {
			// Where it leads is known only while it is checked.
			return errors.New("$dynamicRef and $recursiveRef are not followed")
		}
		inner := subschemas(s)
		todo = append(todo, inner...)
		b.count(s, len(inner))
	}
	return nil
}

// count makes s a step for each schema in it and each value that it is applied to.
func (b *budget) count(s *jsonschema.Schema, inner int) {
	format := s.Format
	name := "steps"
	// The library's own idea of a regex is that of ECMAScript, which Go cannot judge.
	if format != nil && format.Name == "regex" {
		format = nil
	} else if format != nil {
		name = format.Name
	}
	fixed := 1 + inner
	if s.Enum != nil {
		fixed += len(s.Enum.Values)
	}
	s.Format = &jsonschema.Format{Name: name, Validate: func(v any) error {
		cost := fixed
		switch v := v.(type) {
		case map[string]any:
			cost += len(v) * (1 + len(s.PatternProperties))
		case []any:
			cost += len(v)
		}
		if b.left -= cost; b.left < 0 {
			b.spent = true
			return errSpent // and nothing of what is within is looked at
		}
		if format == nil {
			return nil
		}
		return format.Validate(v)
	}}
}

// subschemas returns the schemas that are applied together with s.
func subschemas(s *jsonschema.Schema) []*jsonschema.Schema {
	list := []*jsonschema.Schema{
		s.Ref, s.Not, s.If, s.Then, s.Else, s.PropertyNames, s.UnevaluatedProperties, s.Contains,
		s.Items2020, s.UnevaluatedItems, s.ContentSchema,
	}
	for _, more := range [][]*jsonschema.Schema{s.AllOf, s.AnyOf, s.OneOf, s.PrefixItems} {
		list = append(list, more...)
	}
	for _, more := range []map[string]*jsonschema.Schema{s.Properties, s.DependentSchemas} {
		for _, inner := range more {
			list = append(list, inner)
		}
	}
	for _, inner := range s.PatternProperties {
		list = append(list, inner)
	}
	untyped := []any{s.AdditionalProperties, s.AdditionalItems, s.Items}
	for _, d := range s.Dependencies {
		untyped = append(untyped, d)
	}
	for _, u := range untyped {
		switch u := u.(type) {
		case *jsonschema.Schema:
			list = append(list, u)
		case []*jsonschema.Schema:
			list = append(list, u...)
		}
	}
	kept := list[:0]
	for _, inner := range list {
		if inner != nil {
			kept = append(kept, inner)
		}
	}
	return kept
}

// bounded reports why a decoded JSON value cannot be worked with: it is nested deeper than depth, or
// has a number that is far out of every range. where is the place in the value.
func bounded(value any, depth int) (where []string, err error) {
	if depth < 0 {
		return nil, errors.New("is nested too deeply")
	}
	switch v := value.(type) {
	case json.Number:
		if !workable(string(v)) {
			return nil, errors.New("is a number that is too large, too small or too long")
		}
	case []any:
		for i, inner := range v {
			if where, err := bounded(inner, depth-1); err != nil {
				return append([]string{strconv.Itoa(i)}, where...), err
			}
		}
	case map[string]any:
		for k, inner := range v {
			if where, err := bounded(inner, depth-1); err != nil {
				return append([]string{k}, where...), err
			}
		}
	}
	return nil, nil
}

// TooDeep reports whether a JSON text is nested deeper than a schema may be. Such a schema judges nothing here, and
// clients fail to read the answers that it is in: Python's own parser gives up at some hundred levels.
func TooDeep(raw []byte) bool {
	depth, inText := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case inText:
		case c == '{' || c == '[':
			if depth++; depth > maxSchemaDepth {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

func workable(number string) bool {
	for i, c := range number {
		if c == 'e' || c == 'E' {
			exponent, err := strconv.Atoi(number[i+1:])
			return err == nil && math.Abs(float64(exponent)) <= maxExponent && i <= maxDigits
		}
	}
	return len(number) <= maxDigits
}
