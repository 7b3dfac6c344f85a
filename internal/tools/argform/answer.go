package argform

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// answer turns a line into a value. problem says what is wrong with it; "" with a nil value means that
// an optional field is left out.
func (s *schema) answer(line string, required bool) (value json.RawMessage, problem string) {
	if line == "" {
		switch {
		case s.fallback != nil:
			return s.fallback, ""
		case required && slices.Contains(s.types, "string") && len(s.enum) == 0:
			return nil, `it is required; "" stands for an empty text`
		case required:
			return nil, "it is required"
		}
		return nil, ""
	}
	if len(s.enum) > 0 {
		return s.chosen(line)
	}
	value, problem = s.read(line)
	if problem != "" {
		return nil, problem
	}
	return value, s.check(value)
}

// chosen is a choice, by its text or its number. The text goes first: choices can be numbers.
func (s *schema) chosen(line string) (json.RawMessage, string) {
	for _, c := range s.enum {
		if line == shown(c) || line == string(c) {
			return c, ""
		}
	}
	if n, err := strconv.Atoi(line); err == nil && n >= 1 && n <= len(s.enum) {
		return s.enum[n-1], ""
	}
	return nil, fmt.Sprintf("that is none of them: give one, or its number, 1 to %d", len(s.enum))
}

// read reads a line as a value of one of the types.
func (s *schema) read(line string) (json.RawMessage, string) {
	types := s.allowed()
	may := func(t string) bool { return len(types) == 0 || slices.Contains(types, t) }
	if may("boolean") {
		switch strings.ToLower(line) {
		case "true", "false":
			return json.RawMessage(strings.ToLower(line)), ""
		case "y", "yes", "n", "no":
			if len(types) > 0 && !may("string") {
				return json.RawMessage(strconv.FormatBool(isYes(line))), ""
			}
		}
	}
	raw := json.RawMessage(line)
	if json.Valid(raw) {
		t := typeOf(raw)
		// A text that merely looks like a number or a list stays one where only texts are allowed.
		if may(t) || t == "integer" && may("number") {
			return compact(raw), ""
		}
	}
	if may("string") {
		if text, err := json.Marshal(line); err == nil {
			return text, ""
		}
	}
	switch s.kind() {
	case "integer":
		return nil, "give a whole number, such as 12"
	case "number":
		return nil, "give a number, such as 1.5"
	case "boolean":
		return nil, "give y or n"
	case "object":
		return nil, `give an object as JSON, such as {"key": "value"}`
	case "array":
		return nil, `give a list as JSON, such as ["a", "b"]`
	}
	return nil, "give " + Line(strings.Join(types, " or "), 60) + ", as JSON"
}

func compact(raw json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}

// typeOf is the type of a valid JSON value in the words of JSON Schema.
func typeOf(raw json.RawMessage) string {
	switch raw[0] {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	if n, err := strconv.ParseFloat(string(raw), 64); err == nil && n == math.Trunc(n) {
		return "integer"
	}
	return "number"
}

// check says which bound a value is outside of, or "".
func (s *schema) check(value json.RawMessage) string {
	b := s.bounds
	switch typeOf(value) {
	case "integer", "number":
		n, err := strconv.ParseFloat(string(value), 64)
		if err != nil {
			return "the number is too large"
		}
		return b.checkNumber(n)
	case "string":
		var text string
		if json.Unmarshal(value, &text) != nil {
			return "not a text"
		}
		return b.checkText(text)
	case "array":
		var items []json.RawMessage
		if json.Unmarshal(value, &items) != nil {
			return "not a list"
		}
		return b.checkCount(len(items))
	}
	return ""
}

func (b bounds) checkNumber(n float64) string {
	low, isLow := b.ExclusiveMinimum.(float64)
	high, isHigh := b.ExclusiveMaximum.(float64)
	switch {
	case b.Minimum != nil && n < *b.Minimum:
		return fmt.Sprintf("give at least %v", *b.Minimum)
	case b.Maximum != nil && n > *b.Maximum:
		return fmt.Sprintf("give at most %v", *b.Maximum)
	case isLow && n <= low:
		return fmt.Sprintf("give more than %v", low)
	case isHigh && n >= high:
		return fmt.Sprintf("give less than %v", high)
	}
	return ""
}

func (b bounds) checkText(text string) string {
	n := utf8.RuneCountInString(text)
	switch {
	case b.MinLength != nil && n < *b.MinLength:
		return fmt.Sprintf("give at least %d characters", *b.MinLength)
	case b.MaxLength != nil && n > *b.MaxLength:
		return fmt.Sprintf("give at most %d characters", *b.MaxLength)
	}
	if b.Pattern != "" && len(b.Pattern) <= 1000 {
		// Patterns of JavaScript that Go does not know are left to the tool's server.
		if re, err := regexp.Compile(b.Pattern); err == nil && !re.MatchString(text) {
			return "it has to match " + Line(b.Pattern, 80)
		}
	}
	return ""
}

func (b bounds) checkCount(n int) string {
	switch {
	case b.MinItems != nil && n < *b.MinItems:
		return fmt.Sprintf("give at least %d items", *b.MinItems)
	case b.MaxItems != nil && n > *b.MaxItems:
		return fmt.Sprintf("give at most %d items", *b.MaxItems)
	}
	return ""
}

// collected is the list of items that were given one by one.
func (s *schema) collected(items []json.RawMessage, required bool) (json.RawMessage, string) {
	if len(items) == 0 {
		switch {
		case s.fallback != nil:
			return s.fallback, ""
		case !required:
			return nil, ""
		}
	}
	if problem := s.bounds.checkCount(len(items)); problem != "" {
		return nil, problem
	}
	raw, err := json.Marshal(items)
	if err != nil {
		return nil, "not a list"
	}
	return raw, ""
}
