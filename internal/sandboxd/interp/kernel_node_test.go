package interp

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandboxd/process"
)

// nodeKernel: a test has one bed, for a Manager ends processes that it does not know.
func (b *bed) nodeKernel(language string) *kernel {
	b.Helper()
	if programs("node") == "" {
		b.Fatal("node is not here: make images")
	}
	return b.kernel(b.runner("node"), language)
}

func json1(text, json string) string {
	return `{"text/plain":` + fmt.Sprintf("%q", text) + `,"application/json":` + json + `}`
}

func plain(s string) string { return `{"text/plain":` + fmt.Sprintf("%q", s) + `}` }

func TestTypeScriptContext(t *testing.T) {
	b := newBed(t)
	b.withCodeAPI()
	k := b.nodeKernel("typescript")
	k.wantResult("let x: number = 5;\nconst y = await Promise.resolve(2);\nx + y", plain("7"))
	k.wantResult("x += 1; x * y", plain("12"))
	k.wantResult("const x: string = 'again'; // declared anew\nx;", plain("'again'"))
	k.wantResult("function twice(s: string): string { return s + s }\nclass A<T> { v?: T; n = 1 }\ninterface B { c: string }\ntype C = B | null;\nenum E { One = 1 }", "")
	k.wantResult("[twice(x), new A<number>().n, E.One]", json1("[ 'againagain', 1, 1 ]", `["againagain",1,1]`))
	k.wantResult("const { a, b: [c, ...d], ...e } = { a: 1, b: [2, 3, 4], f: 5 };", "")
	k.wantResult("[a, c, d, e]", json1("[ 1, 2, [ 3, 4 ], { f: 5 } ]", `[1,2,[3,4],{"f":5}]`))
	k.want(k.run("c = 8"), 1, "") // a const
	k.wantResult("var { v = 3, ...rest } = { w: 1 };\nv += 1; [v, rest]", json1("[ 4, { w: 1 } ]", `[4,{"w":1}]`))
	k.wantResult("let n = 0;\nconst inc = () => ++n;", "")
	k.wantResult("inc(); inc(); n", plain("2"))
	k.wantResult("n = 10; inc()", plain("11"))
	k.wantResult("import { readFile, type Nothing } from './servers/files';\nimport * as fs from 'node:fs';\nimport path, { join as j } from 'node:path';", "")
	k.wantResult("[(await readFile({ path: 'p' })).tool, typeof fs.readFileSync, path.basename(j('a', 'b'))]", json1("[ 'files__read', 'function', 'b' ]", `["files__read","function","b"]`))
	k.wantResult("(await import('./servers/files')).readFile === readFile", plain("true"))
	k.wantResult("await callMCPTool('x__y', {}).then((r: any) => r.tool)", plain("'x__y'"))
	k.want(k.run("console.log('out', process.cwd());\nconsole.error('err');"), 0, "out "+k.cwd+"\n")
	k.want(k.run("console.log('a'); process.exit(9); console.log('b');"), 9, "a\n")
	k.want(k.run("setTimeout(() => { throw new Error('late') }, 1); await new Promise(r => setTimeout(r, 5000));"), 1, "")

	r := k.run("const fine: number = 1;\n\nfunction f(): never {\n  throw new Error('boom');\n}\nf();\nconst never = 2;")
	k.want(r, 1, "")
	if !strings.Contains(r.stderr, "Error: boom") || !strings.Contains(r.stderr, ".ts:4:9") || !strings.Contains(r.stderr, ".ts:6:1") || strings.Contains(r.stderr, "kernel") {
		t.Errorf("stack trace:\n%s", r.stderr)
	}
	k.wantResult("[fine, typeof never]", json1("[ 1, 'undefined' ]", `[1,"undefined"]`))
	r = k.run("const z: = 1;")
	if k.want(r, 1, ""); !strings.Contains(r.stderr, "SyntaxError") {
		t.Errorf("a syntax error: %s", r.stderr)
	}

	k.want(k.run("console.log(process.env.SKERRY_EXEC_TOKEN); process.env.MINE = '1'", "SKERRY_EXEC_TOKEN=one"), 0, "one\n")
	k.wantResult("[process.env.SKERRY_EXEC_TOKEN ?? null, process.env.MINE]", json1("[ null, '1' ]", `[null,"1"]`))
	k.wantResult("await display({ 'text/html': '<b>', 'image/png': new Uint8Array([1, 2]) }, { raw: true });\n({ [Symbol.for('Jupyter.display')]: async () => ({ 'text/latex': '$x$' }) })",
		`{"text/html":"<b>","image/png":"AQI="}`+"\n"+`{"text/latex":"$x$"}`)
	r = k.run("for (let i = 0; i < 100; i++) await display(i);\n'x'.repeat(3e6)")
	if len(r.Results) != 64 || r.LeftOut != 37 {
		t.Errorf("%d results, %d left out", len(r.Results), r.LeftOut)
	}
	r = k.run("await display({ 'text/html': 'x'.repeat(3e6) }, { raw: true })")
	if len(r.Results) != 1 || !strings.Contains(r.results(), `"bytes":3000000`) {
		t.Errorf("a large result: %.300s", r.results())
	}
}

func TestJavaScriptContextIsInterrupted(t *testing.T) {
	b := newBed(t)
	k := b.nodeKernel("javascript")
	for _, endless := range []string{"globalThis.x = 2; while (true) {}", "x = 3; await new Promise(() => {})", "x = 4; require('child_process').spawnSync('sleep', ['100'])"} {
		r := k.exec(k.request(endless, 500*time.Millisecond))
		if r.Status != process.TimedOut || r.Lost {
			t.Fatalf("%q: %+v; %s", endless, r.Exit, r.stderr)
		}
	}
	k.wantResult("x", plain("4"))
	if err := k.s.Interrupt(); err != nil {
		t.Fatal(err)
	}
	k.wantResult("x", plain("4"))
	// Behind an await an endless loop can only be ended with its context.
	r := k.exec(k.request("await null; while (true) {}", 500*time.Millisecond))
	if r.Status != process.TimedOut || !r.Lost {
		t.Errorf("%+v", r.Exit)
	}
	k = b.nodeKernel("javascript")
	r = k.run("process.reallyExit(5)")
	if r.Status != process.Exited || r.Code != 5 || !r.Lost {
		t.Errorf("%+v", r.Exit)
	}
	b.how = Choice{JavaScript: "deno"}
	var u *UnavailableError
	if _, err := b.runner("node").Kernel("typescript", b.cwd, b.how); !errors.As(err, &u) || !strings.Contains(u.Reason, "wants deno") {
		t.Error(err)
	}
	b.how = Choice{}
	if _, err := b.runner("bash").Kernel("typescript", b.cwd, b.how); !errors.As(err, &u) || !strings.Contains(u.Reason, "none") {
		t.Error(err)
	}
	if own := process.LookPath("node", envPath); own != "" && own != programs("node") {
		if _, err := b.runnerOf(map[string]string{"node": own}).Kernel("typescript", b.cwd, b.how); !errors.As(err, &u) || !strings.Contains(u.Reason, "22.13") {
			t.Error(err)
		}
	}
}
