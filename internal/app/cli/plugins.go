package cli

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func newPlugins(api *client.Client) *cobra.Command {
	cmd := &cobra.Command{Use: "plugins", Short: "Install plugins, switch them on and off, and look at them"}
	market := &cobra.Command{Use: "marketplaces", Short: "List, add and remove marketplaces"}
	var source pluginFlags
	add := &cobra.Command{
		Use: "add SOURCE", Short: "Add a marketplace, or read one anew: owner/name on GitHub, or the URL of a git repository or archive", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var m sandbox.Marketplace
			if err := api.Call(cmd.Context(), http.MethodPost, "/api/marketplaces", source.body(args[0]), &m); err != nil {
				return err
			}
			if api.JSON {
				return output.JSON(cmd.OutOrStdout(), m)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "marketplace %s: %d plugins\n", m.Name, len(m.Plugins))
			return err
		},
	}
	source.add(add)
	market.AddCommand(add,
		&cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List marketplaces", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			return api.Table(cmd, "/api/marketplaces", []string{"name", "source.from", "source.commit", "added_at"})
		}},
		&cobra.Command{Use: "rm NAME", Short: "Remove a marketplace; what was installed from it stays", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			return api.Call(cmd.Context(), http.MethodDelete, "/api/marketplaces/"+url.PathEscape(args[0]), nil, nil)
		}},
	)
	cmd.AddCommand(newPluginsInspect(api), newPluginsInstall(api), newPluginsValues(api), market,
		&cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List your plugins", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			return api.Table(cmd, "/api/plugins", []string{"name", "version", "enabled", "shared", "source.kind", "source.from", "digest"})
		}},
		newPluginsSwitch(api, "enable", true), newPluginsSwitch(api, "disable", false),
		&cobra.Command{Use: "rm NAME", Short: "Remove a plugin with its files", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			return api.Call(cmd.Context(), http.MethodDelete, "/api/plugins/"+url.PathEscape(args[0]), nil, nil)
		}},
	)
	return cmd
}

func newPluginsSwitch(api *client.Client, use string, on bool) *cobra.Command {
	return &cobra.Command{
		Use: use + " NAME", Short: map[bool]string{true: "Switch a plugin on", false: "Switch a plugin off"}[on], Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return api.Call(cmd.Context(), http.MethodPut, "/api/plugins/"+url.PathEscape(args[0]), map[string]any{"enabled": on}, nil)
		},
	}
}

// pluginFlags pin a source.
type pluginFlags struct {
	kind, ref, sha, sha256, folder string
	replace                        bool
}

func (f *pluginFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.kind, "kind", "", "git, archive or folder (of the server), when it does not follow from the source")
	cmd.Flags().StringVar(&f.ref, "ref", "", "branch or tag")
	cmd.Flags().StringVar(&f.sha, "sha", "", "commit; it wins over --ref")
	cmd.Flags().StringVar(&f.sha256, "sha256", "", "hash of an archive")
	cmd.Flags().StringVar(&f.folder, "folder", "", "folder within the source")
	cmd.Flags().BoolVar(&f.replace, "replace", false, "in place of one of that name")
}

// body leaves out what is not given: an empty kind is none.
func (f *pluginFlags) body(source string) map[string]any {
	body := map[string]any{"source": source}
	for field, value := range map[string]string{"kind": f.kind, "ref": f.ref, "sha": f.sha, "sha256": f.sha256, "folder": f.folder} {
		if value != "" {
			body[field] = value
		}
	}
	if f.replace {
		body["replace"] = true
	}
	return body
}

// installedPlugin is the answer to an install.
type installedPlugin struct {
	Message  string            `json:"message"`
	Plugin   sandbox.Plugin    `json:"plugin"`
	Findings []sandbox.Finding `json:"findings"`
}

func newPluginsInstall(api *client.Client) *cobra.Command {
	var source pluginFlags
	query := url.Values{}
	var shared, strict, off bool
	var digest string
	cmd := &cobra.Command{
		Use: "install SOURCE", Short: "Install a plugin from a folder or archive here, NAME@MARKETPLACE, or a source on the network", Args: cobra.ExactArgs(1),
		Example: "  skerry plugins install ./my-plugin\n  skerry plugins install sales@knowledge-work-plugins\n  skerry plugins install https://example.com/repo.git --folder plugins/x --sha …",
		RunE: func(cmd *cobra.Command, args []string) error {
			for name, on := range map[string]bool{"shared": shared, "strict": strict, "replace": source.replace} {
				query.Set(name, fmt.Sprint(on))
			}
			query.Set("enabled", fmt.Sprint(!off))
			if digest != "" {
				query.Set("digest", digest)
			}
			path := "/api/plugins/install?" + query.Encode()
			var done installedPlugin
			name, market, entry := strings.Cut(args[0], "@")
			info, err := os.Stat(args[0])
			switch {
			case err == nil && source.kind == "":
				err = upload(cmd.Context(), api, path, args[0], info.IsDir(), &done)
			case entry && !strings.ContainsAny(args[0], "/:"):
				err = api.Call(cmd.Context(), http.MethodPost, path, map[string]any{"marketplace": market, "plugin": name}, &done)
			default:
				err = api.Call(cmd.Context(), http.MethodPost, path, source.body(args[0]), &done)
			}
			if err != nil {
				return err
			}
			if api.JSON {
				return output.JSON(cmd.OutOrStdout(), done)
			}
			if err := done.write(cmd.OutOrStdout()); err != nil {
				return err
			}
			return askForValues(cmd, api, done.Plugin)
		},
	}
	source.add(cmd)
	cmd.Flags().BoolVar(&shared, "shared", false, "for all users of the tenant (administrators)")
	cmd.Flags().BoolVar(&strict, "strict", false, "refuse it when the static scan of its files has an error")
	cmd.Flags().BoolVar(&off, "disabled", false, "leave it switched off")
	cmd.Flags().StringVar(&digest, "digest", "", "install only this very plugin")
	return cmd
}

func (d *installedPlugin) write(w io.Writer) error {
	p := d.Plugin
	if _, err := fmt.Fprintf(w, "%s: %d skills, %d commands, %d MCP servers, %s\n", d.Message, len(p.Skills), len(p.Commands), len(p.Servers), p.Digest); err != nil {
		return err
	}
	for _, f := range d.Findings {
		if f.Severity == sandbox.SeverityInfo {
			continue
		}
		// Texts of a plugin are hostile: control characters are shown escaped.
		if _, err := fmt.Fprintf(w, "  %s %s %+q: %+q\n", f.Severity, f.Rule, f.File, f.Message); err != nil {
			return err
		}
	}
	return nil
}

// upload sends a file, or a folder as an archive, as the file of a form.
func upload(ctx context.Context, api *client.Client, path, name string, folder bool, out any) error {
	r, w := io.Pipe()
	form := multipart.NewWriter(w)
	go func() { // it ends with the request, which reads or closes r
		w.CloseWithError(writeForm(form, name, folder)) //nolint:errcheck // it never fails
	}()
	defer r.Close() //nolint:errcheck // it never fails
	return api.Send(ctx, path, form.FormDataContentType(), r, out)
}

func writeForm(form *multipart.Writer, name string, folder bool) error {
	abs, err := filepath.Abs(name)
	if err != nil {
		return err
	}
	label := filepath.Base(abs)
	if folder {
		label += ".tar.gz"
	}
	part, err := form.CreateFormFile("file", label)
	if err != nil {
		return err
	}
	if folder {
		err = writeTar(part, abs)
	} else {
		err = copyFile(part, abs)
	}
	return errors.Join(err, form.Close())
}

func copyFile(w io.Writer, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

// writeTar packs the regular files of a folder, links to files within it as these. What belongs to git stays out.
func writeTar(w io.Writer, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	err = fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".git":
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		info, err := root.Stat(p)
		if err != nil || !info.Mode().IsRegular() {
			return nil //nolint:nilerr // a link that leaves is no part of it
		}
		// When one folder holds everything, a plugin without a name is named after it.
		h := &tar.Header{Name: filepath.Base(dir) + "/" + p, Typeflag: tar.TypeReg, Mode: int64(info.Mode().Perm()), Size: info.Size()}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		f, err := root.Open(p)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(t, f)
		return err
	})
	return errors.Join(err, t.Close(), z.Close())
}
