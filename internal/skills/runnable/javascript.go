package runnable

import (
	"regexp"
	"strings"
	"sync"

	"github.com/evanw/esbuild/pkg/api"
)

// javascripts are the runtimes of which a template names one; without a name the first that is there counts.
var javascripts = []string{"bun", "deno", "node"}

// nodeModules are the modules that Node, bun and deno have built in.
var nodeModules = setOf(`assert async_hooks buffer child_process cluster console constants crypto dgram diagnostics_channel dns domain events fs http http2
	https inspector module net os path perf_hooks process punycode querystring readline repl stream string_decoder sys test timers tls trace_events tty url
	util v8 vm wasi worker_threads zlib bun`)

var (
	jsRuns   = regexp.MustCompile(`\b(?:exec|execSync|spawn|spawnSync|execFile|execFileSync)\s*\(\s*(["'` + "`" + `])([^"'` + "`" + `\n]+)`)
	jsRunsBy = regexp.MustCompile(`\b(?:execSync|spawnSync|spawn|execFile|execFileSync)\s*\(\s*[A-Za-z_$]`)
	jsGoes   = regexp.MustCompile(`\bfetch\s*\(|\bnew WebSocket\s*\(|\b(?:axios|got)\b`)
)

// javascript reads a program in JavaScript or TypeScript: its imports, by a real parser that is given no
// files, and the programs that it starts.
func (p place) javascript(text string) {
	if p.line == 0 {
		p.line = 1
	}
	if len(text) > maxParsed {
		p.doubt("is larger than JavaScript that is read")
		return
	}
	if !p.parses(text) {
		return
	}
	online := jsGoes.MatchString(text)
	imports, ok := importsOf(text)
	if !ok && !p.text {
		p.doubt("cannot be read as JavaScript")
	}
	for _, name := range imports {
		p.nodeImport(name)
		switch name {
		case "http", "https", "node:http", "node:https", "axios", "got", "node-fetch", "undici", "ws":
			online = true
		}
	}
	for _, m := range jsRuns.FindAllStringSubmatch(text, 200) {
		shellReader{p}.shellWords(m[2])
	}
	if !p.text && jsRunsBy.MatchString(text) {
		p.doubt("starts a program whose name is made at run time")
	}
	if online && !p.text {
		p.network(text, "", "goes to the network, to hosts that the text does not name")
	} else if online {
		p.network(text, "", "")
	}
}

// importsOf lists what a program imports or requires by constant names. ok: it could be read.
func importsOf(text string) (names []string, ok bool) {
	if names, ok = importsAs(text, api.LoaderTSX); !ok { // <T>x is a cast in one and an element in the other
		names, ok = importsAs(text, api.LoaderTS)
	}
	return names, ok
}

func importsAs(text string, loader api.Loader) (names []string, ok bool) {
	var mu sync.Mutex // the resolver may be asked by several goroutines
	seen := map[string]bool{}
	res := api.Build(api.BuildOptions{
		Stdin:  &api.StdinOptions{Contents: text, Sourcefile: "main", Loader: loader},
		Bundle: true, Write: false, Format: api.FormatESModule, Platform: api.PlatformNeutral, LogLevel: api.LogLevelSilent,
		TsconfigRaw: `{"compilerOptions":{"verbatimModuleSyntax":true}}`, // imports of which nothing is used, too
		Plugins: []api.Plugin{{Name: "imports", Setup: func(b api.PluginBuild) {
			b.OnResolve(api.OnResolveOptions{Filter: `.*`}, func(a api.OnResolveArgs) (api.OnResolveResult, error) {
				mu.Lock()
				defer mu.Unlock()
				if a.Kind != api.ResolveEntryPoint && !seen[a.Path] {
					seen[a.Path] = true
					names = append(names, a.Path)
				}
				return api.OnResolveResult{Path: a.Path, External: true}, nil
			})
		}}},
	})
	return names, len(res.Errors) == 0
}

func (p place) nodeImport(name string) {
	switch {
	case strings.HasPrefix(name, ".") || strings.HasPrefix(name, "/") || strings.HasPrefix(name, "node:") || strings.HasPrefix(name, "bun:"):
		return
	case strings.HasPrefix(name, "http://") || strings.HasPrefix(name, "https://"):
		p.network(name, "", "")
		return
	case strings.HasPrefix(name, "npm:") || strings.HasPrefix(name, "jsr:"):
		name, _ = npmName(name[4:])
	}
	parts := strings.SplitN(name, "/", 3)
	top := parts[0]
	if strings.HasPrefix(top, "@") && len(parts) > 1 {
		top += "/" + parts[1]
	}
	if nodeModules[top] || p.local.bundled(".", top) || p.local.bundled("scripts", top) {
		return
	}
	p.need(Node, top)
}
