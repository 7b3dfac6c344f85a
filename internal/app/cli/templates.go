package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/template"
	"github.com/skerry-sandbox/skerry/internal/tools/argform"
	sandboxtemplates "github.com/skerry-sandbox/skerry/sandbox-templates"
	sdk "github.com/skerry-sandbox/skerry/sdk/go"
)

func newTemplates(api *client.Client) *cobra.Command {
	cmd := &cobra.Command{
		Use: "templates", Short: "List, check and test the kinds of sandbox",
		Long: "A template is a YAML file that says what a kind of sandbox is made of: its image, limits and languages (docs/templates.md).\n\n" +
			"`lint` works on files of this machine and needs no server, `pool` runs where the server does. The others talk to one.\n\n" +
			"Exit codes: 0 all is well; 1 a test fails, a file is wrong, or the server does not answer.",
		Example: "  skerry templates ls\n  skerry templates lint sandbox-templates\n  skerry templates test data\n  skerry templates sbom data > data.cdx.json",
	}
	cmd.AddCommand(newTemplatesList(api), newTemplatesNew(api), newTemplatesLint(api), newTemplatesTest(api), newTemplatesSBOM(api), newTemplatesPool())
	return cmd
}

func newTemplatesList(api *client.Client) *cobra.Command {
	return &cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List the server's templates", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return api.Table(cmd, "/api/templates", []string{"name", "runtime", "languages", "limits.memory_bytes", "limits.cpu_millis", "description"})
	}}
}

func newTemplatesLint(api *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "lint PATH…", Short: "Check templates as the server does, and name each problem with its file, line and field",
		Long: "Checks templates as the server does. A PATH is a YAML file or a folder of them. No server is needed.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			names := []string{}
			var errs []error
			for _, path := range args {
				found, err := lintTemplates(path)
				errs = append(errs, err)
				names = append(names, found...)
			}
			if err := errors.Join(errs...); err != nil {
				return err
			}
			if api.JSON {
				return output.JSON(cmd.OutOrStdout(), names)
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "no problem in", strings.Join(names, ", "))
			return err
		},
	}
}

// lintTemplates returns the names of the templates in a file, or in a folder.
func lintTemplates(path string) (names []string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	var list []template.Template
	if info.IsDir() {
		list, err = template.Load(os.DirFS(path), sandboxtemplates.FS)
	} else {
		list, err = template.Load(oneFile{os.DirFS(filepath.Dir(path)), filepath.Base(path)}, os.DirFS(filepath.Dir(path)), sandboxtemplates.FS)
	}
	for _, t := range list {
		names = append(names, t.Name)
	}
	return names, err
}

// oneFile is a folder in which only one file is a template, whatever its ending.
type oneFile struct {
	fs.FS
	name string
}

// Glob implements fs.GlobFS.
func (o oneFile) Glob(string) ([]string, error) { return []string{o.name}, nil }

// tested is what became of one smoke test.
type tested struct {
	Name    string `json:"name"`
	OK      bool   `json:"ok"`
	Problem string `json:"problem,omitempty"`
	Millis  int64  `json:"ms"`
}

func newTemplatesTest(api *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "test NAME…", Short: "Run the smoke tests of templates, each template in a new sandbox",
		Long: "Starts a sandbox of the template in a thread of its own, runs what the template lists under `smoke`, and deletes the thread.\n" +
			"A template without smoke tests passes when its sandbox starts.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			all := map[string][]tested{}
			failed := 0
			for _, name := range args {
				results, err := templateTests{api}.testTemplate(cmd, name)
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				all[name] = results
				for _, r := range results {
					if !r.OK {
						failed++
					}
				}
			}
			if api.JSON {
				if err := output.JSON(cmd.OutOrStdout(), all); err != nil {
					return err
				}
			}
			if failed > 0 {
				return fmt.Errorf("%d smoke tests failed", failed)
			}
			return nil
		},
	}
}

// templateTests test templates in sandboxes of a server.
type templateTests struct{ api *client.Client }

// testTemplate runs the smoke tests of one template, and says how each went as it goes.
func (c templateTests) testTemplate(cmd *cobra.Command, name string) (all []tested, err error) {
	t, err := c.template(cmd.Context(), name)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	all = []tested{}
	err = c.inSandboxOf(cmd.Context(), name, func(ctx context.Context, thread string) error {
		all = append(all, tested{Name: "starts", OK: true, Millis: time.Since(began).Milliseconds()})
		for _, s := range t.Smoke {
			all = append(all, c.smoke(ctx, thread, s))
		}
		return nil
	})
	if err != nil || c.api.JSON {
		return all, err
	}
	for _, r := range all {
		word := "ok  "
		if !r.OK {
			word = "FAIL"
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s %s: %s (%d ms)%s\n", word, name, argform.Plain(r.Name), r.Millis, argform.Plain(problemText(r)))
	}
	return all, nil
}

func problemText(r tested) string {
	if r.OK {
		return ""
	}
	return ": " + r.Problem
}

// template returns one of the server's templates.
func (c templateTests) template(ctx context.Context, name string) (sandbox.Template, error) {
	var list struct{ Items []sandbox.Template }
	if err := c.api.Call(ctx, http.MethodGet, "/api/templates", nil, &list); err != nil {
		return sandbox.Template{}, err
	}
	names := make([]string, len(list.Items))
	for i, t := range list.Items {
		if t.Name == name {
			return t, nil
		}
		names[i] = t.Name
	}
	slices.Sort(names)
	return sandbox.Template{}, fmt.Errorf("the server has no such template; it has %s", strings.Join(names, ", "))
}

// cleanTime bounds the deletion of a thread after what it was for.
const cleanTime = time.Minute

// inSandboxOf calls do with a new thread that has a sandbox of the template, and deletes it afterwards.
func (c templateTests) inSandboxOf(ctx context.Context, template string, do func(ctx context.Context, thread string) error) (err error) {
	thread := "template-test-" + strings.ToLower(rand.Text())
	path := "/api/threads/" + thread
	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
		defer cancel()
		if e := c.api.Call(clean, http.MethodDelete, path, nil, nil); e != nil && sandbox.KindOf(e) != sandbox.NotFound {
			err = errors.Join(err, fmt.Errorf("the thread %s is left: %w", thread, e))
		}
	}()
	var started struct {
		Sandbox struct{ State sandbox.State }
	}
	if err := c.api.Call(ctx, http.MethodPut, path+"/sandbox", map[string]any{"template": template, "wait_s": 120}, &started); err != nil {
		return err
	}
	if started.Sandbox.State != sandbox.Running {
		return fmt.Errorf("its sandbox is still %s after two minutes", started.Sandbox.State)
	}
	return do(ctx, thread)
}

// smoke runs one test.
func (c templateTests) smoke(ctx context.Context, thread string, s sandbox.SmokeTest) tested {
	began := time.Now()
	route, body := "exec", map[string]any{"timeout_s": s.TimeoutSeconds}
	switch {
	case s.Code != "":
		route, body = "execute_code", map[string]any{"timeout": s.TimeoutSeconds, "language": s.Language, "code": s.Code}
	case s.Run != "":
		body["command"] = s.Run
	default:
		body["argv"] = s.Argv
	}
	var res sandbox.Result
	err := c.api.CallOnce(ctx, http.MethodPost, client.ThreadPath(thread, route), body, &res)
	r := tested{Name: s.Name, Millis: time.Since(began).Milliseconds()}
	if err != nil {
		r.Problem = err.Error()
	} else {
		r.Problem = s.Judge(res)
	}
	r.OK = r.Problem == ""
	return r
}

// sbomTime bounds the wait for a list: a server looks into an image for two minutes at most.
const sbomTime = 150 * time.Second

func newTemplatesSBOM(api *client.Client) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use: "sbom NAME", Short: "List what a template's image is made of, as CycloneDX JSON",
		Long: "The server reads in a new sandbox of the template which packages of the system (dpkg, apk, rpm), of Python and of npm its image has, with\n" +
			"versions and licences as the packages say them. The image must have sh, sed and awk. A list is at most an hour old.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			ctx, cancel := context.WithTimeout(cmd.Context(), sbomTime)
			defer cancel()
			res, err := api.Request(ctx, sdk.Request{Method: http.MethodGet, Path: "/api/templates/" + url.PathEscape(args[0]) + "/sbom"})
			if err != nil {
				return err
			}
			defer res.Body.Close() //nolint:errcheck // it was read, or something else went wrong
			w := cmd.OutOrStdout()
			if out != "" {
				f, err := os.Create(out)
				if err != nil {
					return err
				}
				defer func() { err = errors.Join(err, f.Close()) }()
				w = f
			}
			_, err = io.Copy(w, io.LimitReader(res.Body, client.MaxAnswer))
			return err
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "file to write to, in place of standard output")
	return cmd
}
