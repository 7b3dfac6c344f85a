package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// maxDepth is how deep arguments may be nested; the hub refuses deeper ones before.
const maxDepth = 1000

// parse reads one JSON value exactly: a name that is there twice is an error, because one reader takes the first
// of them and another one the last; so is text that is no Unicode, which readers replace in different ways.
// Numbers are json.Number.
func parse(text []byte) (any, error) {
	if bytes.Contains(text, []byte(`\u`)) {
		if err := surrogates(text); err != nil {
			return nil, err
		}
	}
	if !utf8.Valid(text) {
		return nil, fmt.Errorf("a text is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	v, err := value(d, nil)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("there is more than one JSON value")
	}
	return v, nil
}

// parseArguments is parse for what an MCP server gets. Names of arguments that differ only in case are an error:
// some servers, all that read JSON as Go does among them, take them for one, and the rules would judge the other.
// Within an argument such names may be data. There the conditions of rules look at what they name.
func parseArguments(text []byte) (any, error) {
	v, err := parse(text)
	if err != nil {
		return nil, err
	}
	object, _ := v.(map[string]any)
	return v, onlyOnce(object)
}

// onlyOnce reports names of an object that differ only in case.
func onlyOnce(object map[string]any) error {
	seen := make(map[string]string, len(object))
	for _, name := range slices.Sorted(maps.Keys(object)) {
		folded := foldName(name)
		if other, twice := seen[folded]; twice {
			return fmt.Errorf("%s and %s are one name for programs that ignore case; send one of them", shownPath([]string{other}), shownPath([]string{name}))
		}
		seen[folded] = name
	}
	return nil
}

// foldName is the same for names that some reader takes for one: it ignores case, and how Unicode writes a character.
func foldName(name string) string {
	if isASCII(name) {
		return strings.ToLower(name)
	}
	fold := cases.Fold()
	// Folding can undo the normal form and the other way round: twice is a fixed point.
	return norm.NFKC.String(fold.String(norm.NFKC.String(fold.String(name))))
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] > unicode.MaxASCII {
			return false
		}
	}
	return true
}

func value(d *json.Decoder, path []string) (any, error) {
	if len(path) > maxDepth {
		return nil, fmt.Errorf("nested deeper than %d", maxDepth)
	}
	t, err := d.Token()
	if err != nil {
		return nil, fmt.Errorf("not JSON")
	}
	switch t {
	case json.Delim('{'):
		object := map[string]any{}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, fmt.Errorf("not JSON")
			}
			name, _ := key.(string) // the decoder takes nothing else
			at := append(path[:len(path):len(path)], name)
			if _, twice := object[name]; twice {
				return nil, fmt.Errorf("%s is there twice", shownPath(at))
			}
			if object[name], err = value(d, at); err != nil {
				return nil, err
			}
		}
		_, err = d.Token()
		return object, err
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := value(d, append(path[:len(path):len(path)], strconv.Itoa(len(list))))
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = d.Token()
		return list, err
	}
	return t, nil
}

func shownPath(path []string) string {
	s := strings.Join(path, ".")
	if len(s) > 200 {
		s = strings.ToValidUTF8(s[:200], "") + "…"
	}
	return strconv.Quote(s)
}

// surrogates refuses half of a UTF-16 pair: Go reads it as U+FFFD, other readers keep it.
func surrogates(text []byte) error {
	for i := 0; i+1 < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		i++ // what is escaped
		if text[i] != 'u' {
			continue
		}
		r := unit(text, i+1)
		if !utf16.IsSurrogate(r) {
			continue
		}
		if i+6 >= len(text) || text[i+5] != '\\' || text[i+6] != 'u' || utf16.DecodeRune(r, unit(text, i+7)) == utf8.RuneError {
			return fmt.Errorf("a text has half of a surrogate pair (\\u%04x)", r)
		}
		i += 10
	}
	return nil
}

// unit reads four hex digits at i; -1 when there are none.
func unit(text []byte, i int) rune {
	if i+4 > len(text) {
		return -1
	}
	n, err := strconv.ParseUint(string(text[i:i+4]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(n)
}
