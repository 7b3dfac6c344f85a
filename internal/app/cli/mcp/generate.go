package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/codeapi/standalone"
)

// manifestFile lists what a former run wrote, with the hash of each file: only that is ever replaced
// or deleted.
const manifestFile = ".skerry-generated.json"

const maxManifest = 64 << 20

// mcpGenerate is one `skerry mcp generate`.
type mcpGenerate struct {
	*mcpFlags
	servers []string
	clean   bool
	output  string
}

func newMCPGenerate(f *mcpFlags) *cobra.Command {
	g := &mcpGenerate{mcpFlags: f}
	cmd := &cobra.Command{
		Use: "generate", Short: "Write typed TypeScript and Python functions for all tools, with examples that run",
		Long: "Writes one typed TypeScript and one Python function for each tool, and example.ts and example.py, which run as\n" +
			"they are (bun, deno, node 22.18 or newer; python3). Their calls go to the Skerry server that was asked, or, when\n" +
			"the MCP servers were started here, to `skerry mcp call`, once for each call. SKERRY_SERVER and SKERRY_API_KEY are\n" +
			"read when they run; no key is written.\n\n" +
			"A file that this command did not write, or an example that was changed since, is left alone.\n\n" + whereHelp + "\n\n" + exitCodesHelp,
		Example: "  skerry mcp generate\n  skerry mcp generate --server filesystem --clean --output code\n  python3 code/example.py",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return g.run(cmd) },
	}
	cmd.Flags().StringArrayVar(&g.servers, "server", nil, "only this MCP server; may be given more than once")
	cmd.Flags().BoolVar(&g.clean, "clean", false, "first delete what a former run wrote there")
	cmd.Flags().StringVarP(&g.output, "output", "o", "skerry-code-api", "folder to write into")
	return cmd
}

// generated is what was done, as --json prints it.
type generated struct {
	Output  string            `json:"output"`
	Servers int               `json:"servers"`
	Tools   int               `json:"tools"`
	Files   int               `json:"files"`
	Bytes   int               `json:"bytes"`
	Removed int               `json:"removed"`
	Kept    []string          `json:"kept"`   // files of other hands, left alone
	Failed  map[string]string `json:"failed"` // servers that did not answer, and why
}

func (g *mcpGenerate) run(cmd *cobra.Command) (err error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), g.timeout)
	defer cancel()
	source, names, err := g.open(cmd, g.servers)
	if err != nil {
		return exit.Of(err)
	}
	defer func() { err = joined(err, source.close()) }()
	chosen, err := selected(ctx, source, names)
	if err != nil {
		return exit.Of(err)
	}
	list, err := withTools(ctx, source, chosen)
	if err != nil {
		return exit.Of(err)
	}
	done := generated{Output: g.output, Kept: []string{}, Failed: map[string]string{}}
	var set sandbox.ToolSet
	for _, s := range list {
		if s.Error != "" {
			done.Failed[s.Name] = s.Error
			continue
		}
		done.Servers++
		set.Tools = append(set.Tools, s.full...)
	}
	done.Tools = len(set.Tools)
	if done.Tools == 0 {
		return errors.Join(exit.With(exit.Failed, "no tools, so nothing was written; %s", known(chosen)), silent(list))
	}
	tree, err := standalone.Generate(set, g.connection(source))
	if err != nil {
		return exit.Of(err)
	}
	if err := done.write(g.output, tree, g.clean); err != nil {
		return exit.With(exit.Failed, "%s: %w", g.output, err)
	}
	if err := done.show(cmd.OutOrStdout(), g.api.JSON); err != nil {
		return err
	}
	return silent(list)
}

// connection is how the tree reaches the tools that it was made from.
func (g *mcpGenerate) connection(source toolSource) standalone.Connection {
	if r, ok := source.(*remoteTools); ok {
		return standalone.Connection{Server: r.api.Server, Thread: r.thread}
	}
	program := "skerry"
	if self, err := os.Executable(); err == nil {
		program = self
	}
	return standalone.Connection{Thread: g.thread, Command: []string{program, "mcp", "--config", source.config(), "call"}}
}

func (d *generated) show(w io.Writer, asJSON bool) error {
	if asJSON {
		return output.JSON(w, d)
	}
	for _, k := range d.Kept {
		fmt.Fprintf(w, "kept %s: it was changed, or not written by this command\n", k)
	}
	removed := ""
	if d.Removed > 0 {
		removed = fmt.Sprintf(", %s removed", output.Count(d.Removed, "old file"))
	}
	_, err := fmt.Fprintf(w, "%s, %s: %s (%d bytes) in %s%s\nTry: python3 %s, or bun %s\n",
		output.Count(d.Servers, "server"), output.Count(d.Tools, "tool"), output.Count(d.Files, "file"), d.Bytes, d.Output, removed, path.Join(d.Output, "example.py"), path.Join(d.Output, "example.ts"))
	return err
}

// write puts the tree into dir. Nothing outside of it is touched, whatever links are there.
func (d *generated) write(dir string, tree map[string][]byte, clean bool) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	before, err := readManifest(root)
	if err != nil {
		return err
	}
	after := map[string]string{}
	if clean {
		d.Removed, err = removeOld(root, before, tree)
	} else {
		maps.Copy(after, before) // wrappers of other servers stay
	}
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		mine, err := replaceable(root, name, before)
		if err != nil {
			return err
		}
		if !mine {
			d.Kept = append(d.Kept, name)
			if hash, ok := before[name]; ok {
				after[name] = hash // still to be known as changed the next time
			}
			continue
		}
		if err := writeIn(root, name, tree[name]); err != nil {
			return err
		}
		after[name] = hashOf(tree[name])
		d.Files, d.Bytes = d.Files+1, d.Bytes+len(tree[name])
	}
	raw, err := json.MarshalIndent(after, "", " ")
	if err != nil {
		return err
	}
	return writeIn(root, manifestFile, append(raw, '\n'))
}

// readManifest returns the files of a former run by their hashes; none when there was none.
func readManifest(root *os.Root) (map[string]string, error) {
	m := map[string]string{}
	f, err := root.Open(manifestFile)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxManifest))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("%s is broken; delete it, or choose another --output: %w", manifestFile, err)
	}
	return m, nil
}

// replaceable reports whether a file may be written: it is not there, or a former run wrote it and
// it was not changed since. Wrappers and helpers that were changed are replaced all the same: they are
// of no server.
func replaceable(root *os.Root, name string, before map[string]string) (bool, error) {
	raw, err := root.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	hash, known := before[name]
	return known && (strings.Contains(name, "/") || hash == hashOf(raw)), nil
}

// removeOld deletes what a former run wrote, and the folders that are empty then. What the tree
// replaces is counted as written, not as removed.
func removeOld(root *os.Root, before map[string]string, tree map[string][]byte) (int, error) {
	removed := 0
	folders := map[string]bool{}
	for name := range before {
		mine, err := replaceable(root, name, before)
		if err != nil {
			return removed, err
		}
		if _, again := tree[name]; again || !mine {
			continue
		}
		switch err := root.Remove(name); {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return removed, err
		}
		removed++
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			folders[dir] = true
		}
	}
	// The longest first: a folder is empty after those in it are gone.
	for _, dir := range slices.Backward(slices.Sorted(maps.Keys(folders))) {
		_ = root.Remove(dir) // a folder with files stays
	}
	return removed, nil
}

func writeIn(root *os.Root, name string, text []byte) error {
	if dir := path.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return root.WriteFile(name, text, 0o644)
}

func hashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
