package skills

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/buckets"
	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/platform/download"
	"github.com/skerry-sandbox/skerry/internal/platform/s3"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/archive"
	"github.com/skerry-sandbox/skerry/internal/skills/source"
	"github.com/skerry-sandbox/skerry/skills"
)

// installFlags are the flags of `skerry skills install`.
type installFlags struct {
	api                     *client.Client
	config, lock            string
	locked, strict, replace bool
	timeout                 time.Duration
}

// installed is one skill that was installed, as the server tells it.
type installed struct {
	Name     string            `json:"skill_name"`
	Source   string            `json:"source"`
	Digest   string            `json:"digest"`
	Message  string            `json:"message"`
	Findings []sandbox.Finding `json:"findings"`
}

func newSkillsInstall(api *client.Client) *cobra.Command {
	f := &installFlags{api: api}
	cmd := &cobra.Command{
		Use: "install [SOURCE…]", Short: "Install skills on a server",
		Long: `Installs skills on a server, for you alone. A SOURCE is

  a folder or a .skill file of this machine     my-skill   my-skill.skill
  a file of a thread                            THREAD:/mnt/user-data/outputs/my-skill.skill
  an archive that the server fetches            https://example.com/my-skill.skill
                                                s3://bucket/my-skill.skill
  a skill of a marketplace                      NAME@MARKETPLACE

Without a SOURCE, all skills of skills.json are installed, and skills.lock.json notes which they were:

  {"sources": [{"type": "dir", "path": "skills"}, {"type": "file", "path": "pdf.skill"},
               {"type": "https", "url": "https://example.com/x.skill"}, {"type": "s3", "url": "s3://bucket/x.skill"},
               {"type": "embedded", "name": "csv-profile"}]}

With --locked they must be exactly those of the lock file, else nothing is installed and each difference is
named. Here addresses are read from this machine: S3 with SKERRY_S3_… (see docs/configuration.md) or AWS_…, private
networks only with SKERRY_PLUGINS_ADDRESSES.

` + skillsExitCodes,
		Example: "  skerry skills install my-skill.skill\n  skerry skills install --locked",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
			defer cancel()
			if len(args) > 0 && (f.locked || cmd.Flags().Changed("config")) {
				return exit.With(exit.Usage, "--locked and --config are for the skills of skills.json: leave the SOURCE out")
			}
			var done []installed
			var err error
			if len(args) > 0 {
				done, err = f.named(ctx, args)
			} else {
				done, err = f.listed(ctx, cmd)
			}
			return errors.Join(f.show(cmd, done), skillFailed(err))
		},
	}
	cmd.Flags().StringVar(&f.config, "config", "skills.json", "the list of sources")
	cmd.Flags().StringVar(&f.lock, "lock", "", "the lock file (default: skills.lock.json beside skills.json)")
	cmd.Flags().BoolVar(&f.locked, "locked", false, "install exactly what the lock file says, or nothing")
	cmd.Flags().BoolVar(&f.strict, "strict", false, "refuse a skill when the scan for dangerous things finds an error")
	cmd.Flags().BoolVar(&f.replace, "replace", false, "delete a skill of yours with the same name first")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 10*time.Minute, "for all of it")
	return cmd
}

func (f *installFlags) show(cmd *cobra.Command, done []installed) error {
	if f.api.JSON {
		if done == nil {
			done = []installed{}
		}
		return output.JSON(cmd.OutOrStdout(), done)
	}
	for _, d := range done {
		fmt.Fprintf(cmd.OutOrStdout(), "%s  %s  %s\n", d.Message, d.Source, d.Digest)
		showFindings(cmd.ErrOrStderr(), d.Name, d.Findings)
	}
	return nil
}

// named installs what the command line names, one after the other.
func (f *installFlags) named(ctx context.Context, args []string) ([]installed, error) {
	var done []installed
	for _, arg := range args {
		one, err := f.one(ctx, arg)
		if err != nil {
			return done, named(arg, err)
		}
		done = append(done, one)
	}
	return done, nil
}

// named puts the source before an error of it.
func named(what string, err error) error {
	return sandbox.Wrap(sandbox.KindOf(err), nil, "%s: %s", what, err)
}

func (f *installFlags) one(ctx context.Context, arg string) (installed, error) {
	if strings.HasPrefix(arg, "s3://") || strings.HasPrefix(arg, "https://") || strings.HasPrefix(arg, "http://") {
		return f.post(ctx, arg, "", map[string]any{"url": arg})
	}
	if name, market, ok := strings.Cut(arg, "@"); ok && !strings.ContainsAny(arg, "/:.") {
		return f.post(ctx, arg, "", map[string]any{"marketplace": market, "skill": name})
	}
	if thread, path, ok := strings.Cut(arg, ":"); ok && strings.HasPrefix(path, "/") {
		return f.post(ctx, arg, "", map[string]any{"thread_id": thread, "path": path})
	}
	kind := source.TypeFile
	if info, err := os.Stat(arg); err == nil && info.IsDir() {
		kind = source.TypeDir
	}
	found, err := f.find(ctx, source.Config{Sources: []source.Entry{{Type: kind, Path: arg}}}, nil)
	if err != nil {
		return installed{}, err
	}
	if len(found) != 1 {
		return installed{}, sandbox.Errorf(sandbox.Invalid, "holds %d skills; name one of them", len(found))
	}
	return f.upload(ctx, found[0])
}

// listed installs the skills of skills.json.
func (f *installFlags) listed(ctx context.Context, cmd *cobra.Command) ([]installed, error) {
	c, err := source.Read(f.config)
	if err != nil {
		return nil, err
	}
	lockFile := f.lock
	if lockFile == "" {
		lockFile = filepath.Join(filepath.Dir(f.config), "skills.lock.json")
	}
	lock, err := source.ReadLock(lockFile)
	if err != nil && (f.locked || !errors.Is(err, sandbox.NotFound)) {
		return nil, err
	}
	from, done, err := fetcher(c)
	if err != nil {
		return nil, err
	}
	defer done()
	found, err := f.find(ctx, c, from)
	if err != nil {
		return nil, err
	}
	if f.locked {
		if err := lock.Check(found); err != nil {
			return nil, err
		}
	}
	have, err := f.digests(cmd)
	if err != nil {
		return nil, err
	}
	var all []installed
	for _, sk := range found {
		if have[sk.Name] == sk.Digest {
			all = append(all, installed{Name: sk.Name, Source: sk.Source, Digest: sk.Digest, Message: "skill " + sk.Name + " was installed before", Findings: []sandbox.Finding{}})
			continue
		}
		one, err := f.upload(ctx, sk)
		if err != nil {
			return all, named(sk.Source, err)
		}
		all = append(all, one)
	}
	if f.locked {
		return all, nil
	}
	return all, lock.With(found, time.Now()).Write(lockFile)
}

// digests returns the digests of the caller's own skills.
func (f *installFlags) digests(cmd *cobra.Command) (map[string]string, error) {
	all, err := listSkills(f.api, cmd, "")
	if err != nil {
		return nil, err
	}
	have := map[string]string{}
	for _, s := range all {
		name, _ := s["name"].(string)
		digest, _ := s["digest"].(string)
		if s["category"] == sandbox.CategoryCustom {
			have[name] = digest
		}
	}
	return have, nil
}

func (f *installFlags) find(ctx context.Context, c source.Config, from source.Fetcher) (_ []source.Skill, err error) {
	temp, err := os.MkdirTemp("", "skerry-install-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	finder := source.Finder{Embedded: skills.FS, Fetcher: from, Temp: temp, Limits: archive.DefaultLimits()}
	return finder.Find(ctx, c)
}

// fetcher makes what reads the addresses of a list; nil when it has none. done closes its connections.
func fetcher(c source.Config) (_ source.Fetcher, done func(), err error) {
	done = func() {}
	if !slices.ContainsFunc(c.Sources, func(e source.Entry) bool { return e.URL != "" }) {
		return nil, done, nil
	}
	cfg, err := config.Load(os.Getenv("SKERRY_CONFIG"), os.LookupEnv)
	if err != nil {
		return nil, done, err
	}
	options, err := buckets.Options(cfg.S3)
	if err != nil {
		return nil, done, err
	}
	addresses, err := cfg.Plugins.Prefixes()
	if err != nil {
		return nil, done, err
	}
	client, err := s3.New(options)
	if err != nil {
		return nil, done, err
	}
	web := download.New(addresses)
	return source.Addresses{S3: client, Web: web}, func() { _ = errors.Join(client.Close(), web.Close()) }, nil
}

// upload sends a skill; the server installs it only when it has the digest that was seen here.
func (f *installFlags) upload(ctx context.Context, sk source.Skill) (installed, error) {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("file", sk.Name+".skill")
	if err == nil {
		_, err = part.Write(sk.Archive)
	}
	if err := errors.Join(err, form.Close()); err != nil {
		return installed{}, err
	}
	if f.replace {
		if err := f.remove(ctx, sk.Name); err != nil {
			return installed{}, err
		}
	}
	return f.send(ctx, sk.Source, sk.Digest, &body, form.FormDataContentType())
}

// remove deletes a skill that may be there.
func (f *installFlags) remove(ctx context.Context, name string) error {
	err := f.api.Call(ctx, http.MethodDelete, "/api/skills/custom/"+url.PathEscape(name), nil, nil)
	if errors.Is(err, sandbox.NotFound) {
		return nil
	}
	return err
}

func (f *installFlags) post(ctx context.Context, from, digest string, body any) (installed, error) {
	if f.replace {
		return installed{}, sandbox.Errorf(sandbox.Invalid, "--replace is for folders, files and skills.json: the name of this skill is known only when it is installed")
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return installed{}, err
	}
	return f.send(ctx, from, digest, bytes.NewReader(raw), "application/json")
}

func (f *installFlags) send(ctx context.Context, from, digest string, body io.Reader, kind string) (installed, error) {
	query := url.Values{}
	if digest != "" {
		query.Set("digest", digest)
	}
	if f.strict {
		query.Set("strict", "true")
	}
	done := installed{Source: from}
	err := f.api.Send(ctx, "/api/skills/install?"+query.Encode(), kind, body, &done)
	if errors.Is(err, sandbox.Conflict) && digest != "" && !f.replace {
		err = sandbox.Errorf(sandbox.Conflict, "%s\n--replace puts this one in its place", err)
	}
	return done, err
}
