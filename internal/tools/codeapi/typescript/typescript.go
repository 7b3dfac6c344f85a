package typescript

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/skerry-sandbox/skerry/internal/platform/subprocess"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/codeapi"
)

// StripTypes turns TypeScript into JavaScript for a runtime that cannot read types. Imports of the
// code API are put into the text, because such a runtime cannot read the wrappers either; any other
// import is left as it is. esbuild reads the text in a process of its own, because it calls itself for
// every bracket. It sees no file of this host: the plugin answers every look-up from memory or calls it external.
func StripTypes(ctx context.Context, text string, set sandbox.ToolSet) (string, error) {
	tree, err := codeapi.Generate(set)
	if err != nil {
		return "", sandbox.Wrap(sandbox.Internal, err, "the wrappers cannot be made")
	}
	out, err := strip.Call(ctx, program{Text: text, Wrappers: tree})
	var refused *subprocess.Error
	if errors.As(err, &refused) {
		return "", sandbox.Errorf(sandbox.Invalid, "code: %s", refused.Why)
	}
	if err != nil && ctx.Err() == nil {
		err = sandbox.Wrap(sandbox.Internal, err, "the types cannot be stripped")
	}
	return out, err
}

// program is what strip reads: a text, and the wrappers that it may import, by path.
type program struct {
	Text     string            `json:"text"`
	Wrappers map[string][]byte `json:"wrappers"`
}

var strip = subprocess.New("strip-types", func(p program) (string, error) {
	res := api.Build(api.BuildOptions{
		Stdin:  &api.StdinOptions{Contents: p.Text, Sourcefile: "main.ts", Loader: api.LoaderTS},
		Bundle: true, Write: false, Format: api.FormatESModule, Target: api.ES2022, Platform: api.PlatformNode,
		Sourcemap: api.SourceMapInline, LogLevel: api.LogLevelSilent, Plugins: []api.Plugin{fromMemory(p.Wrappers)},
	})
	if len(res.Errors) > 0 {
		e := res.Errors[0]
		where := ""
		if e.Location != nil {
			where = fmt.Sprintf(" (line %d, column %d)", e.Location.Line, e.Location.Column+1)
		}
		return "", fmt.Errorf("%s%s", e.Text, where)
	}
	return string(res.OutputFiles[0].Contents), nil
})

func fromMemory(tree map[string][]byte) api.Plugin {
	const space = "code-api"
	return api.Plugin{Name: space, Setup: func(b api.PluginBuild) {
		b.OnResolve(api.OnResolveOptions{Filter: `.*`}, func(a api.OnResolveArgs) (api.OnResolveResult, error) {
			dir := ""
			if a.Namespace == space {
				dir = path.Dir(a.Importer)
			}
			if strings.HasPrefix(a.Path, ".") {
				p := path.Join(dir, a.Path)
				for _, name := range []string{p, p + ".ts", p + "/index.ts"} {
					if _, ok := tree[name]; ok {
						return api.OnResolveResult{Path: name, Namespace: space}, nil
					}
				}
			}
			return api.OnResolveResult{Path: a.Path, External: true}, nil
		})
		b.OnLoad(api.OnLoadOptions{Filter: `.*`, Namespace: space}, func(a api.OnLoadArgs) (api.OnLoadResult, error) {
			text := string(tree[a.Path])
			return api.OnLoadResult{Contents: &text, Loader: api.LoaderTS}, nil
		})
	}}
}
