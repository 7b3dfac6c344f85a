package codeapi

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/codeapi/wrapperpath"
)

// FuzzWrapper: whatever a server says of a tool, the wrapper is the call and nothing else. The test ignores
// its types, its comments and its strings.
func FuzzWrapper(f *testing.F) {
	for _, s := range hardSchemas {
		f.Add("server", "tool", "about", s, s)
	}
	for _, t := range hostileTools() {
		f.Add(t.Server, t.Name, t.Description, string(t.Input), "")
	}
	f.Fuzz(func(t *testing.T, server, name, description, input, output string) {
		tl := sandbox.Tool{Server: server, Name: name, Printed: server + "__" + name, Description: description, Input: json.RawMessage(input), Output: json.RawMessage(output)}
		tree := generate(t, tl)
		checkTS(t, string(tree["servers/"+wrapperpath.FileName(server)+"/"+wrapperpath.FileName(name)+".ts"]))
		for path, text := range tree {
			if strings.HasSuffix(path, "/__init__.py") && strings.Count(path, "/") == 2 {
				checkPython(t, string(text))
			}
		}
	})
}

var tsLeft = regexp.MustCompile(`^(// All tools of the MCP server "[^\n]*\n)?import { callMCPTool } from "\.\./\.\./helpers/callMCPTool\.ts";\nexport async function \w+\(input( = {})?\) {\n  return callMCPTool\(("(\\.|[^"\\\n])*"|'(\\.|[^'\\\n])*'|` + "`(\\\\.|[^`\\\\$])*`" + `), input\);\n}\n$`)

func checkTS(t *testing.T, text string) {
	t.Helper()
	out := api.Transform(text, api.TransformOptions{Loader: api.LoaderTS, TsconfigRaw: `{"compilerOptions":{"verbatimModuleSyntax":true}}`, LegalComments: api.LegalCommentsNone})
	if len(out.Errors) > 0 {
		t.Fatalf("%s\n%s", out.Errors[0].Text, text)
	}
	// A block comment before the function is kept; it must end where ours does.
	left := regexp.MustCompile(`(?s)/\*.*?\*/\n?`).ReplaceAllString(string(out.Code), "")
	if !tsLeft.MatchString(left) {
		t.Fatalf("left of the wrapper:\n%s\nwhich was:\n%s", left, text)
	}
}

var pyLeft = regexp.MustCompile(`^(|S|    S|def [a-z0-9_]+\([\w :=,\[\].+-]*, _input: Union\[Dict\[str, Any\], None\] = None, \*\*kwargs_*: Any\) -> [\w \[\],.+-]+:|def [a-z0-9_]+\(_input: Union\[Dict\[str, Any\], None\] = None, \*\*kwargs_*: Any\) -> [\w \[\],.+-]+:|    return _call\(S, \{[\w :,]*\}, _input, kwargs_*\))$`)

var pyClass = regexp.MustCompile(`^(|    class \w+\(TypedDict, total=False\):|        \w+: [\w \[\],.+-]+|    \w+ = TypedDict\(S, \{|        S: S, *|    }, total=False\))$`)

func checkPython(t *testing.T, text string) {
	t.Helper()
	left, err := withoutStrings(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	_, functions, ok := strings.Cut(left, "**_named})\n")
	_, classes, ok2 := strings.Cut(left, "TypedDict as TypedDict\n")
	classes, _, ok3 := strings.Cut(classes, "\n__all__ = ")
	for _, line := range strings.Split(classes, "\n") {
		if !pyClass.MatchString(line) {
			t.Fatalf("left of the classes: %q\n%s", line, text)
		}
	}
	if !ok || !ok2 || !ok3 || strings.Count(functions, "\ndef ") != 1 {
		t.Fatalf("left of the module:\n%s", left)
	}
	for _, line := range strings.Split(functions, "\n") {
		if !pyLeft.MatchString(line) {
			t.Fatalf("left of the module: %q\n%s", line, text)
		}
	}
}

// withoutStrings puts S for each string of a Python text.
func withoutStrings(text string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(text); {
		if text[i] == '#' { // a comment, to the end of its line
			for i < len(text) && text[i] != '\n' {
				i++
			}
			continue
		}
		if text[i] != '"' {
			b.WriteByte(text[i])
			i++
			continue
		}
		mark := `"`
		if strings.HasPrefix(text[i:], `"""`) {
			mark = `"""`
		}
		i += len(mark)
		for !strings.HasPrefix(text[i:], mark) {
			if text[i:] == "" || text[i] == '\n' && mark == `"` {
				return "", fmt.Errorf("a string without an end")
			}
			if text[i] == '\\' {
				i++
			}
			i++
			if i > len(text) {
				return "", fmt.Errorf("a string without an end")
			}
		}
		i += len(mark)
		b.WriteByte('S')
	}
	return b.String(), nil
}
