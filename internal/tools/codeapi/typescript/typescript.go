package typescript

import (
	"fmt"
	"path"
	"strings"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/codeapi"
)

// StripTypes turns TypeScript into JavaScript for a runtime that cannot read types. Imports of the
// code API are put into the text, because such a runtime cannot read the wrappers either; any other
// import is left as it is. esbuild sees no file of this host: the plugin answers every look-up from
// memory or calls it external.
func StripTypes(text string, set sandbox.ToolSet) (string, error) {
	tree, err := codeapi.Generate(set)
	if err != nil {
		return "", sandbox.Wrap(sandbox.Internal, err, "the wrappers cannot be made")
	}
	res := api.Build(api.BuildOptions{
		Stdin:  &api.StdinOptions{Contents: text, Sourcefile: "main.ts", Loader: api.LoaderTS},
		Bundle: true, Write: false, Format: api.FormatESModule, Target: api.ES2022, Platform: api.PlatformNode,
		Sourcemap: api.SourceMapInline, LogLevel: api.LogLevelSilent, Plugins: []api.Plugin{fromMemory(tree)},
	})
	if len(res.Errors) > 0 {
		e := res.Errors[0]
		where := ""
		if e.Location != nil {
			where = fmt.Sprintf(" (line %d, column %d)", e.Location.Line, e.Location.Column+1)
		}
		return "", sandbox.Errorf(sandbox.Invalid, "code: %s%s", e.Text, where)
	}
	return string(res.OutputFiles[0].Contents), nil
}

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
