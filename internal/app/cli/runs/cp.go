package runs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
)

// workspace is where paths of a thread begin that are not absolute.
const workspace = "/mnt/user-data/workspace"

// maxCopied bounds how many files one command copies.
const maxCopied = 10_000

// newCp is `skerry cp`.
func newCp(api *client.Client) *cobra.Command {
	var recursive bool
	cmd := &cobra.Command{
		Use: "cp SOURCE TARGET", Short: "Copy files into a thread, or out of it", Args: exit.Arguments(cobra.ExactArgs(2)),
		Long: "Copies a file, or with -r a folder. One of both is THREAD:PATH. A path in a thread that is not absolute is below " + workspace + ". " +
			"- is standard input or output. Links are not followed, and not copied.",
		Example: "  skerry cp report.csv demo:/mnt/user-data/uploads/\n  skerry cp demo:out.png .\n  skerry cp -r demo:/mnt/user-data/outputs results\n  skerry cp demo:notes.txt -",
		RunE: func(cmd *cobra.Command, args []string) error {
			from, to := placeOf(args[0]), placeOf(args[1])
			c := copier{api: api, recursive: recursive, cmd: cmd}
			switch {
			case from.thread != "" && to.thread == "":
				return c.out(cmd.Context(), from, to.path)
			case to.thread != "" && from.thread == "":
				return c.in(cmd.Context(), from.path, to)
			}
			return exit.With(exit.Usage, "one of SOURCE and TARGET has to be in a thread: THREAD:PATH")
		},
	}
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "copy folders with all that is in them")
	return cmd
}

// place is a path here, or in a thread.
type place struct{ thread, path string }

// placeOf reads THREAD:PATH. What has a slash or a dot before the colon is a path here, and so is C:\x on Windows.
func placeOf(arg string) place {
	thread, in, ok := strings.Cut(arg, ":")
	if !ok || thread == "" || runtime.GOOS == "windows" && len(thread) == 1 || strings.ContainsAny(thread, `/\.`) {
		return place{path: arg}
	}
	if !path.IsAbs(in) {
		in = workspace + "/" + in
	}
	return place{thread, in}
}

type copier struct {
	api       *client.Client
	cmd       *cobra.Command
	recursive bool
	copied    int
}

// count bounds the copies.
func (c *copier) count() error {
	if c.copied++; c.copied > maxCopied {
		return fmt.Errorf("more than %d files: copy an archive instead", maxCopied)
	}
	return nil
}

// in copies into a thread.
func (c *copier) in(ctx context.Context, from string, to place) error {
	t := c.api.SDK().Thread(to.thread)
	put := func(r io.Reader, at string) error {
		if err := c.count(); err != nil {
			return err
		}
		_, err := t.Put(ctx, at, r)
		return client.Explain(err)
	}
	if from == "-" {
		return put(struct{ io.Reader }{c.cmd.InOrStdin()}, to.path)
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	entry, err := statOf(ctx, t, to.path)
	if err != nil {
		return err
	}
	if strings.HasSuffix(to.path, "/") || entry != nil && entry.IsDir {
		abs, err := filepath.Abs(from)
		if err != nil {
			return err
		}
		to.path = path.Join(to.path, filepath.Base(abs))
	}
	file := func(name, at string) error {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		return put(f, at)
	}
	if !info.IsDir() {
		return file(from, to.path)
	}
	if !c.recursive {
		return exit.With(exit.Usage, "%s is a folder: add -r", from)
	}
	return filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		return file(name, path.Join(to.path, filepath.ToSlash(rel)))
	})
}

// out copies out of a thread. The names come from hostile ground: nothing is written outside of the target.
func (c *copier) out(ctx context.Context, from place, to string) error {
	entry, err := statOf(ctx, c.api.SDK().Thread(from.thread), from.path)
	if err != nil {
		return err
	}
	if entry == nil {
		return exit.With(exit.NoTool, "there is no %s in the thread %s", from.path, from.thread)
	}
	if to == "-" {
		return c.read(ctx, from, c.cmd.OutOrStdout())
	}
	if info, err := os.Stat(to); err == nil && info.IsDir() || strings.HasSuffix(to, "/") {
		to = filepath.Join(to, path.Base(from.path))
	}
	if !entry.IsDir {
		f, err := os.Create(to)
		if err != nil {
			return err
		}
		return errors.Join(c.read(ctx, from, f), f.Close())
	}
	if !c.recursive {
		return exit.With(exit.Usage, "%s is a folder: add -r", from.path)
	}
	return c.tree(ctx, from, to)
}

// tree copies a folder into a new one, or into one that is there.
func (c *copier) tree(ctx context.Context, from place, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil { //nolint:gosec // the user's umask says more
		return err
	}
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer root.Close()
	list, err := c.api.SDK().Thread(from.thread).ListFiles(ctx, from.path, maxTreeDepth)
	if err != nil {
		return client.Explain(err)
	}
	if list.Truncated {
		return errors.New("the folder has more files than one listing: copy its parts, or an archive")
	}
	for _, e := range list.Items {
		rel, ok := strings.CutPrefix(e.Path, strings.TrimSuffix(from.path, "/")+"/")
		if !ok || e.IsDir || e.Symlink != "" {
			continue
		}
		rel = filepath.FromSlash(rel)
		if !filepath.IsLocal(rel) {
			return fmt.Errorf("the name %q cannot be one here", rel)
		}
		if err := root.MkdirAll(filepath.Dir(rel), 0o755); err != nil {
			return err
		}
		f, err := root.Create(rel)
		if err != nil {
			return err
		}
		if err := errors.Join(c.read(ctx, place{from.thread, e.Path}, f), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// maxTreeDepth is how deep a listing goes.
const maxTreeDepth = 64

// read copies one file of a thread to w.
func (c *copier) read(ctx context.Context, from place, w io.Writer) error {
	if err := c.count(); err != nil {
		return err
	}
	r, err := c.api.SDK().Thread(from.thread).Get(ctx, from.path)
	if err != nil {
		return client.Explain(err)
	}
	defer r.Close()
	if _, err := io.Copy(w, r); err != nil {
		return fmt.Errorf("%s did not come whole: %w", from.path, err)
	}
	return nil
}
