package run

import (
	"path"
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/format"
	"github.com/skerry-sandbox/skerry/internal/tools/resultfile"
)

// anyJavaScript runs its arguments with the first runtime that the image has, in the order of execute_code.
const anyJavaScript = `for js in bun deno node; do
command -v "$js" >/dev/null 2>&1 || continue
case "$js" in
bun) exec bun "$@" ;;
deno) exec deno @DENO@ "$@" ;;
node) exec node @NODE@ "$@" ;;
esac
done
echo "there is none of bun, deno and node in this sandbox, of which the script needs one" >&2
exit 127`

var (
	// denoOptions are those that execute_code has, too. Deno asks no question, fetches nothing, and finds './helper'
	// with the ending left out, as bun does.
	denoOptions = []string{"run", "--quiet", "--no-prompt", "--no-remote", "--no-lock", "--no-config", "--node-modules-dir=manual", "--unstable-sloppy-imports"}
	// nodeTypes make Node before 23.6 read types; later ones take the options and do so anyway.
	nodeTypes = []string{"--experimental-strip-types", "--disable-warning=ExperimentalWarning"}
)

// scriptArgv is the command line of a script as a template wants it run. argv[0] is format.JavaScript where nothing but
// the ending of the script says what runs it; every other command line stays as it is.
func scriptArgv(argv []string, t instance.Template) []string {
	if len(argv) < 2 || argv[0] != format.JavaScript {
		return argv
	}
	script := argv[1:]
	var node []string
	if strings.EqualFold(path.Ext(script[0]), ".ts") {
		node = nodeTypes
	}
	switch t.JavaScript {
	case "":
		deno := append(slices.Clone(denoOptions), "--allow-all")
		text := strings.NewReplacer("@DENO@", strings.Join(deno, " "), "@NODE@", strings.Join(node, " ")).Replace(anyJavaScript)
		return append([]string{"sh", "-c", text, "sh"}, script...)
	case "deno":
		return slices.Concat([]string{"deno"}, denoOptions, denoAllows(t.Deno, path.Dir(script[0])), script)
	case "node":
		return slices.Concat([]string{"node"}, node, script)
	}
	return append([]string{t.JavaScript}, script...)
}

// denoAllows are Deno's permissions for a script. With a list of its own it may read the template's places, the folder of
// the skill that it lies in, and what tool calls need.
func denoAllows(d *sandbox.DenoPermissions, dir string) []string {
	if d == nil {
		return []string{"--allow-all"}
	}
	var options []string
	for _, kind := range []struct {
		name string
		list []string
	}{
		{"read", append([]string{skillRoot(dir), sandbox.CodeAPIDir, sandbox.WorkspaceDir + "/.skerry/results", resultfile.Dir}, d.Read...)},
		{"write", d.Write},
		{"net", append([]string{"localhost:9876", "127.0.0.1:9876"}, d.Net...)},
		{"env", append([]string{"MCP_RPC_ENDPOINT", "MCP_BRIDGE_PORT", "SKERRY_EXEC_TOKEN"}, d.Env...)},
		{"run", d.Run},
	} {
		if len(kind.list) > 0 {
			options = append(options, "--allow-"+kind.name+"="+strings.Join(kind.list, ","))
		}
	}
	return options
}

// skillRoot is the skill's folder of a folder in it: a script in scripts/ may read what lies beside scripts/.
func skillRoot(dir string) string {
	if path.Base(dir) == "scripts" {
		return path.Dir(dir)
	}
	return dir
}
