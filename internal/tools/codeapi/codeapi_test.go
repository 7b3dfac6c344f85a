package codeapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/codeapi/wrapperpath"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func tool(server, name, input, output string) sandbox.Tool {
	t := sandbox.Tool{Server: server, Name: name, Printed: server + "__" + name, Description: "About " + name + ".", Input: json.RawMessage(input)}
	if output != "" {
		t.Output = json.RawMessage(output)
	}
	return t
}

func generate(t testing.TB, tools ...sandbox.Tool) map[string][]byte {
	t.Helper()
	tree, err := Generate(sandbox.ToolSet{Tools: tools})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func writeTree(t testing.TB, dir string, tree map[string][]byte) {
	t.Helper()
	for path, text := range tree {
		if err := writeFile(filepath.Join(dir, path), text); err != nil {
			t.Fatal(err)
		}
	}
}

// program finds a program of the toolchain. CI has all of them.
func program(t testing.TB, name string, places ...string) string {
	t.Helper()
	for _, p := range places {
		if _, err := os.Stat(filepath.Join(p, name)); err == nil {
			return filepath.Join(p, name)
		}
	}
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is not installed", name)
	}
	t.Skipf("%s is not installed", name)
	return ""
}

// command is a program that ends within a minute.
func command(t testing.TB, name string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second
	return cmd
}

func cacheDir(parts ...string) string {
	dir := os.Getenv("SKERRY_CACHE")
	if dir == "" {
		dir = "/var/cache/skerry"
	}
	return filepath.Join(append([]string{dir}, parts...)...)
}

func npmBin() string {
	if dir := os.Getenv("SKERRY_MCP_DIR"); dir != "" {
		return filepath.Join(dir, "node_modules/.bin")
	}
	return cacheDir("mcp/node_modules/.bin")
}

func compile(t *testing.T, dir string) {
	t.Helper()
	tsc := program(t, "tsc", npmBin())
	for _, module := range []string{`"module":"nodenext","moduleResolution":"nodenext"`, `"module":"esnext","moduleResolution":"bundler"`} {
		config := `{"compilerOptions":{"strict":true,"noEmit":true,"allowImportingTsExtensions":true,"target":"es2022","lib":["es2022"],"types":[],
			"erasableSyntaxOnly":true,"verbatimModuleSyntax":true,"isolatedModules":true,"noUncheckedIndexedAccess":true,"noUnusedLocals":true,` + module + `},"include":["**/*.ts"]}`
		must(t, os.WriteFile(filepath.Join(dir, "tsconfig.json"), []byte(config), 0o644))
		must(t, os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"type":"module"}`), 0o644))
		cmd := command(t, tsc, "-p", dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("tsc, %s: %v\n%.6000s", module, err, out)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pyCompile parses every Python file and checks that it holds nothing but what a wrapper needs: so no
// text of a server has become code.
func pyCompile(t *testing.T, dir string) {
	t.Helper()
	const script = `import ast, sys, pathlib
allowed = (ast.Expr, ast.ImportFrom, ast.Import, ast.Assign, ast.AnnAssign, ast.If, ast.FunctionDef)
for p in pathlib.Path(sys.argv[1]).rglob("*.py"):
    tree = ast.parse(p.read_bytes(), str(p))
    compile(tree, str(p), "exec")
    if p.parent.parent.name == "servers":
        for n in tree.body:
            assert isinstance(n, allowed), (p, ast.dump(n))
            if isinstance(n, ast.Expr): assert isinstance(n.value, ast.Constant), p
            if isinstance(n, ast.If):
                for c in n.body:
                    if isinstance(c, ast.Assign) and isinstance(c.value, ast.Call) and c.value.func.id == "TypedDict":
                        ast.literal_eval(c.value.args[0]), ast.literal_eval(c.value.args[1])
                        continue
                    assert isinstance(c, ast.ImportFrom) or isinstance(c, ast.ClassDef) and all(isinstance(a, ast.AnnAssign) and a.value is None for a in c.body), (p, ast.dump(c))
            if isinstance(n, ast.FunctionDef) and n.name != "_call":
                assert len(n.body) == 2 and isinstance(n.body[1], ast.Return) and isinstance(n.body[0].value, ast.Constant), (p, n.name)
`
	if out, err := command(t, program(t, "python3"), "-c", script, dir).CombinedOutput(); err != nil {
		t.Errorf("python: %v\n%.4000s", err, out)
	}
}

// check runs the strict type checker over the Python, as pyCompile does what it does.
func check(t *testing.T, dir string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(dir, "pyrightconfig.json"), []byte(`{"typeCheckingMode":"strict","pythonVersion":"3.12","include":["."]}`), 0o644))
	out, err := command(t, program(t, "pyright", npmBin()), "-p", dir).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "0 errors, 0 warnings") {
		t.Errorf("pyright: %v\n%.6000s", err, out)
	}
}

// npmTools returns the tools of fourteen servers from npm, with their schemas.
func npmTools(t testing.TB) []sandbox.Tool {
	t.Helper()
	text, err := os.ReadFile("../search/testdata/npm-servers.json")
	must(t, err)
	var tools []sandbox.Tool
	must(t, json.Unmarshal(text, &tools))
	if len(tools) < 200 {
		t.Fatalf("%d tools", len(tools))
	}
	for i := range tools {
		tools[i].Printed = tools[i].Server + "__" + tools[i].Name
	}
	return tools
}

// corpus returns the tools of seven real servers.
func corpus(t testing.TB) []sandbox.Tool {
	t.Helper()
	text, err := os.ReadFile("../../../testdata/tool-search/corpus_v1.tools.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Tools []struct{ Server, Tool, Description string }
	}
	must(t, json.Unmarshal(text, &doc))
	var tools []sandbox.Tool
	for _, c := range doc.Tools {
		tools = append(tools, sandbox.Tool{Server: c.Server, Name: c.Tool, Printed: c.Server + "__" + c.Tool, Description: c.Description})
	}
	if len(tools) < 40 {
		t.Fatalf("%d tools", len(tools))
	}
	return tools
}

// TestRealToolsCompile: every tool with a real schema that we have, and a use of some.
func TestRealToolsCompile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeTree(t, dir, generate(t, npmTools(t)...))
	must(t, os.WriteFile(filepath.Join(dir, "use.ts"), []byte(`import { readTextFile } from "./servers/filesystem/index.ts";
import * as memory from "./servers/memory/index.ts";
export const text: string = (await readTextFile({ path: "/x" })).content;
export const names: string[] = (await memory.readGraph()).entities.map((e) => e.name);
`), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "use.py"), []byte(`from servers import filesystem, memory
from servers.kubernetes import kubectl_get

text: str = filesystem.read_text_file(path="/x")["content"]
names: list[str] = [e["name"] for e in memory.read_graph()["entities"]]
kubectl_get(resourceType="pods", name="", namespace="x")
`), 0o644))
	compile(t, dir)
	pyCompile(t, dir)
	check(t, dir)
}

func TestCorpusCompiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeTree(t, dir, generate(t, corpus(t)...))
	compile(t, dir)
	pyCompile(t, dir)
	check(t, dir)
}

func TestHardSchemasCompile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var tools []sandbox.Tool
	for i, s := range hardSchemas {
		tools = append(tools, tool("hard", fmt.Sprintf("t%d", i), s, s))
	}
	tools = append(tools, hostileTools()...)
	tree := generate(t, tools...)
	writeTree(t, dir, tree)
	compile(t, dir)
	pyCompile(t, dir)
	check(t, dir)
	for _, tl := range tools {
		here := 0
		for path := range tree {
			if strings.EqualFold(path, "servers/"+wrapperpath.FileName(tl.Server)+"/"+wrapperpath.FileName(tl.Name)+".ts") {
				here++
			}
		}
		if here != 1 {
			t.Errorf("%s of %s: %d files", tl.Name, tl.Server, here)
		}
	}
}

// TestTypedUseOfPython: what pyright must accept with the generated types, and what not.
func TestTypedUseOfPython(t *testing.T) {
	t.Parallel()
	pyright := program(t, "pyright", npmBin())
	dir := t.TempDir()
	writeTree(t, dir, generate(t,
		tool("files", "readTextFile", `{"type":"object","properties":{"path":{"type":"string"},"head":{"type":"integer"},"mode":{"enum":["a","b"]}},"required":["path"]}`,
			`{"type":"object","properties":{"content":{"type":"string"},"size":{"type":["integer","null"]},"tree":{"$ref":"#/$defs/node"}},"required":["content","size","tree"],
			"$defs":{"node":{"allOf":[{"$ref":"#/$defs/named"},{"type":"object","properties":{"children":{"type":"array","items":{"$ref":"#/$defs/node"}}},"required":["children"]}]},"named":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}}}`),
		tool("files", "pair", `{"type":"object","properties":{"p":{"type":"array","prefixItems":[{"type":"string"},{"type":"number"}],"items":false},"m":{"type":"object","additionalProperties":{"type":"number"}}}}`, "")))
	lines := []struct {
		code string
		ok   bool
	}{
		{`a: str = read_text_file("x", head=3, mode="a")["content"]`, true},
		{`b: "int | None" = read_text_file(path="x")["size"]`, true},
		{`c: str = read_text_file(path="x")["tree"]["children"][0]["name"]`, true},
		{`pair(p=["a", 1.5], m={"x": 2})`, true},
		{`read_text_file()`, false},
		{`read_text_file(path=1)`, false},
		{`read_text_file("x", mode="c")`, false},
		{`d: int = read_text_file("x")["content"]`, false},
		{`e: int = read_text_file("x")["tree"]["name"]`, false},
		{`pair(p=[None])`, false},
		{`pair(m={"x": "y"})`, false},
	}
	text := "from servers.files import pair, read_text_file\n"
	for _, l := range lines {
		text += l.code + "\n"
	}
	must(t, os.WriteFile(filepath.Join(dir, "use.py"), []byte(text), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "pyrightconfig.json"), []byte(`{"typeCheckingMode":"strict","pythonVersion":"3.12","include":["."]}`), 0o644))
	out, err := command(t, pyright, "-p", dir).CombinedOutput()
	if err == nil {
		t.Fatalf("nothing is wrong: %s", out)
	}
	for i, l := range lines {
		if said := strings.Contains(string(out), fmt.Sprintf("use.py:%d:", i+2)); said == l.ok {
			t.Errorf("%s: ok is not %t\n%s", l.code, l.ok, out)
		}
	}
}

// TestTypedUse: what must compile with the generated types, and what must not.
func TestTypedUse(t *testing.T) {
	t.Parallel()
	tools := []sandbox.Tool{
		tool("files", "read_text_file", `{"type":"object","properties":{"path":{"type":"string"},"head":{"type":"integer","default":5}},"required":["path"],"additionalProperties":false}`,
			`{"type":"object","properties":{"content":{"type":"string"},"size":{"type":["integer","null"]}},"required":["content","size"]}`),
		tool("files", "list", `{"type":"object"}`, `{"type":"object","properties":{"root":{"$ref":"#/$defs/node"}},"required":["root"],"$defs":{"node":{"type":"object","properties":{"name":{"type":"string"},"kind":{"enum":["file","folder"]},"children":{"type":"array","items":{"$ref":"#/$defs/node"}}},"required":["name","kind"]}}}`),
		tool("files", "new", `{"type":"object","properties":{"pair":{"type":"array","prefixItems":[{"type":"string"},{"type":"number"}],"minItems":2,"items":false},"tags":{"type":"object","additionalProperties":{"type":"number"}}}}`, ""),
	}
	for name, c := range map[string]struct {
		code string
		ok   bool
	}{
		"good": {`const r = await files.readTextFile({ path: "a" });
export const s: string = r.content;
export const n: number | null = r.size;
const l = await files.list();
export const k: "file" | "folder" | undefined = l.root.children?.[0]?.children?.[0]?.kind;
await files.new_();
await files.new_({ pair: ["a", 1], tags: { x: 1 } });`, true},
		"missing":      {`await files.readTextFile({});`, false},
		"wrong type":   {`await files.readTextFile({ path: 1 });`, false},
		"misspelt":     {`await files.readTextFile({ path: "a", heat: 1 });`, false},
		"wrong result": {`export const s: number = (await files.readTextFile({ path: "a" })).content;`, false},
		"short pair":   {`await files.new_({ pair: ["a"] });`, false},
		"wrong map":    {`await files.new_({ tags: { x: "y" } });`, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeTree(t, dir, generate(t, tools...))
			must(t, os.WriteFile(filepath.Join(dir, "use.ts"), []byte("import * as files from \"./servers/files/index.ts\";\n"+c.code+"\nexport {};\n"), 0o644))
			must(t, os.WriteFile(filepath.Join(dir, "tsconfig.json"), []byte(`{"compilerOptions":{"strict":true,"noEmit":true,"allowImportingTsExtensions":true,"target":"es2022","lib":["es2022"],"types":[],"module":"esnext","moduleResolution":"bundler"}}`), 0o644))
			out, err := command(t, program(t, "tsc", npmBin()), "-p", dir).CombinedOutput()
			if (err == nil) != c.ok || err != nil && !strings.Contains(string(out), "use.ts") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, camel, snake string }{
		{"read_text_file", "readTextFile", "read_text_file"},
		{"getHTTPResponse", "getHTTPResponse", "get_http_response"},
		{"API-get-user", "apiGetUser", "api_get_user"},
		{"new", "new", "new"},
		{"2fa", "_2fa", "_2fa"},
		{"../x", "x", "x"},
		{".hidden", "hidden", "hidden"},
		{"größe", "grE", "gr_e"},
		{"", "tool", "tool"},
		{"日本", "tool", "tool"},
		{"x.d", "xD", "x_d"},
		{"a/b c", "aBC", "a_b_c"},
	} {
		if got := camelCase(c.name); got != c.camel {
			t.Errorf("camelCase(%q) = %q, want %q", c.name, got, c.camel)
		}
		if got := snakeCase(c.name); got != c.snake {
			t.Errorf("snakeCase(%q) = %q, want %q", c.name, got, c.snake)
		}
	}
}

func TestCollisions(t *testing.T) {
	t.Parallel()
	tree := generate(t, tool("s", "a_b", `{}`, ""), tool("s", "a-b", `{}`, ""), tool("s", "aB", `{}`, ""), tool("s", "a b", `{}`, ""), tool("s", "index", `{}`, ""), tool("s", "class", `{}`, ""),
		tool("my-server", "x", `{}`, ""), tool("my_server", "x", `{}`, ""), tool("my.server", "x", `{}`, ""))
	all := ""
	for path, text := range tree {
		if strings.HasPrefix(path, "servers/s/") && strings.HasSuffix(path, ".ts") {
			all += string(text)
		}
	}
	for _, f := range []string{"aB", "aB2", "aB3", "aB4", "index", "class_"} {
		if strings.Count(all, "function "+f+"(") != 1 {
			t.Errorf("function %s: %d times", f, strings.Count(all, "function "+f+"("))
		}
	}
	for path, want := range map[string]string{
		"servers/s/a_b.ts":                `"s__a b"`, // shares the file of a_b
		"servers/s/index.ts":              `"s__index"`,
		"servers/s/__init__.py":           "def a_b_4(",
		"servers/my_server/__init__.py":   `"my_server__x"`,
		"servers/my_server_2/__init__.py": `"my-server__x"`,
		"servers/my_server_3/__init__.py": `"my.server__x"`,
		"servers/my-server/x.ts":          `"my-server__x"`,
		"helpers/callMCPTool.ts":          "export async function callMCPTool",
		"helpers/call_mcp_tool.py":        "def call_mcp_tool(",
		"helpers/types.ts":                "ToolCall",
		"helpers/__init__.py":             `"""`,
		"servers/__init__.py":             `"""`,
	} {
		if !strings.Contains(string(tree[path]), want) {
			t.Errorf("%s holds no %s:\n%s", path, want, tree[path])
		}
	}
}

// TestWhatReadersSee: the text of one wrapper, as an agent reads it.
func TestWhatReadersSee(t *testing.T) {
	t.Parallel()
	tl := tool("files", "edit_file", `{"type":"object","properties":{"dry-run":{"type":"boolean","default":false,"description":"Show only"},"mode":{"enum":["a","b",1,null]},"edits":{"type":"array","items":{"type":"object","properties":{"old":{"type":"string","description":"what is there"}},"required":["old"]}},"path":{"type":"string"}},"required":["path"]}`, "")
	tree := generate(t, tl)
	const ts = `import { callMCPTool } from "../../helpers/callMCPTool.ts";

export type EditFileInput = {
  /** Show only (default: false) */
  "dry-run"?: boolean;
  mode?: "a" | "b" | 1 | null;
  edits?: {
    /** what is there */
    old: string;
  }[];
  path: string;
};

export type EditFileOutput = unknown;

/** About edit_file. */
export async function editFile(input: EditFileInput): Promise<EditFileOutput> {
  return callMCPTool<EditFileOutput>("files__edit_file", input);
}
`
	if got := string(tree["servers/files/edit_file.ts"]); got != ts {
		t.Errorf("got:\n%s", got)
	}
	const py = `def edit_file(path: str, mode: Union[Literal["a", "b", 1], None] = _UNSET, edits: List[EditFileEditsItem] = _UNSET, _input: Union[Dict[str, Any], None] = None, **kwargs: Any) -> Any:
    """About edit_file.

    Args:
        dry-run: Show only (default: false)
        (by **{…} or _input: dry-run)
    """
    return _call("files__edit_file", {"path": path, "mode": mode, "edits": edits}, _input, kwargs)
`
	const class = `
    class EditFileEditsItem(TypedDict, total=False):
        old: Required[str]  # what is there

`
	if got := string(tree["servers/files/__init__.py"]); !strings.HasSuffix(got, py) || !strings.Contains(got, class) {
		t.Errorf("got:\n%s", got)
	}
}

// TestPythonKeywordsInObjects: a member that Python cannot name is still shown.
func TestPythonKeywordsInObjects(t *testing.T) {
	t.Parallel()
	tree := generate(t, tool("m", "rel", `{"type":"object","properties":{"all":{"type":"array","items":{"type":"object","properties":{"from":{"type":"string","description":"x"},"to-kind":{"enum":["a"]}},"required":["from"],"additionalProperties":false}}}}`, ""))
	const want = `
    RelAllItem = TypedDict("RelAllItem", {
        "from": "Required[str]",  # x
        "to-kind": "Literal[\"a\"]",
    }, total=False)
`
	if got := string(tree["servers/m/__init__.py"]); !strings.Contains(got, want) {
		t.Errorf("got:\n%s", got)
	}
}

func TestSameSetSameBytes(t *testing.T) {
	t.Parallel()
	tools := append(hostileTools(), tool("a", "b", hardSchemas[0], ""))
	one := generate(t, tools...)
	slices.Reverse(tools)
	two := generate(t, tools...)
	if nameOf(one) != nameOf(two) {
		t.Error("the order of the tools changes the tree")
	}
}

func TestPathsStayInside(t *testing.T) {
	t.Parallel()
	for path := range generate(t, tool("../../etc", "../passwd", "", ""), tool(".", "..", "", ""), tool("a/b", "/", "", ""), tool("", "", "", ""), tool(strings.Repeat("x", 5000), strings.Repeat("y", 5000), "", "")) {
		if !fs.ValidPath(path) || !strings.HasPrefix(path, "servers/") && !strings.HasPrefix(path, "helpers/") && path != "skills/README.md" {
			t.Errorf("path %q", path)
		}
		for _, part := range strings.Split(path, "/") {
			if len(part) > 255 || part[0] == '.' {
				t.Errorf("path %q", path)
			}
		}
	}
}

// TestLongDescription: 10 KB of a tool's description are all there in TypeScript, and a part of them in
// Python.
func TestLongDescription(t *testing.T) {
	t.Parallel()
	tl := tool("s", "t", `{"type":"object"}`, "")
	tl.Description = strings.Repeat("a word */ or \"\"\"\n", 650) + "the end"
	tree := generate(t, tl)
	if ts := string(tree["servers/s/t.ts"]); len(tl.Description) < 10_000 || !strings.Contains(ts, " * the end\n */\nexport async function t(") || strings.Count(ts, "*/") != 1 {
		t.Errorf("%d bytes of %d:\n%.300s", len(ts), len(tl.Description), ts)
	}
	if py := string(tree["servers/s/__init__.py"]); len(py) > 4000 || !strings.Contains(py, "…\n") {
		t.Errorf("%d bytes", len(py))
	}
}

func TestDefaultsAreTold(t *testing.T) {
	t.Parallel()
	tree := generate(t, tool("s", "t", `{"type":"object","properties":{"a":{"default":{"b":[1,"x",null,true]},"description":"An a."},"b":{"type":"string","default":""},"c":{"default":null},"long":{"default":["`+strings.Repeat("x", 200)+`"]}}}`, ""))
	for path, wants := range map[string][]string{
		"servers/s/t.ts":        {`/** An a. (default: {"b":[1,"x",null,true]}) */`, `/** (default: "") */`, `/** (default: null) */`},
		"servers/s/__init__.py": {`a: An a. (default: {\"b\":[1,\"x\",null,true]})`, `b: (default: \"\")`},
	} {
		for _, want := range wants {
			if !strings.Contains(string(tree[path]), want) || strings.Contains(string(tree[path]), "xxx") {
				t.Errorf("%s: no %s in\n%s", path, want, tree[path])
			}
		}
	}
}

// thousand returns a thousand tools of real servers.
func thousand(t testing.TB) []sandbox.Tool {
	real := npmTools(t)
	tools := make([]sandbox.Tool, 1000)
	for i := range tools {
		tools[i] = real[i%len(real)]
		tools[i].Server += fmt.Sprint(i / len(real))
		tools[i].Printed = tools[i].Server + "__" + tools[i].Name
	}
	return tools
}

// BenchmarkMaterialize is a thousand tools, on disk and all.
func BenchmarkMaterialize(b *testing.B) {
	set := sandbox.ToolSet{Tools: thousand(b)}
	for b.Loop() {
		s, dir := newStore(b)
		must(b, s.Materialize(set, dir))
	}
}

func BenchmarkGenerate(b *testing.B) {
	set := sandbox.ToolSet{Tools: thousand(b)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Generate(set); err != nil {
			b.Fatal(err)
		}
	}
}

// TestSkillsOfThread: tools of skills have wrappers of their own, which are part of the set's hash. Without any there is no
// Python package of the name, which a program may have itself.
func TestSkillsOfThread(t *testing.T) {
	t.Parallel()
	set := sandbox.ToolSet{Hash: "h", Tools: []sandbox.Tool{{Server: "files", Name: "read", Printed: "files__read"}}}
	tree, err := Generate(set)
	if err != nil || tree["skills/__init__.py"] != nil || tree["skills/README.md"] == nil || WithSkills(set) != "h" {
		t.Fatalf("%v, %v", err, tree)
	}
	set.Skills = []sandbox.Tool{{Server: "skill/code-review", Name: "count-lines", Printed: "skill/code-review/count-lines", Description: "Counts"}}
	if tree, err = Generate(set); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"skills/code-review/count-lines.ts": `"skill/code-review/count-lines"`,
		"skills/code-review/index.ts":       `All tools of the skill "code-review"`,
		"skills/code_review/__init__.py":    "def count_lines(",
		"skills/__init__.py":                "active skill",
		"servers/files/read.ts":             "files__read",
		"servers/__init__.py":               "MCP server",
	} {
		if !strings.Contains(string(tree[file]), want) {
			t.Errorf("%s has no %q:\n%s", file, want, tree[file])
		}
	}
	one := WithSkills(set)
	set.Skills[0].Description = "Counts all"
	if one == "h" || WithSkills(set) == one {
		t.Error("the hash does not change with a tool of a skill")
	}
}
