// Package install takes archives of skills from users: it unpacks, checks and scans them, and hands what is
// left to the library, with a record in the audit log. An install happens whole or not at all.
package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/platform/download"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills"
	"github.com/skerry-sandbox/skerry/internal/skills/archive"
	"github.com/skerry-sandbox/skerry/internal/skills/format"
	"github.com/skerry-sandbox/skerry/internal/skills/lint"
	"github.com/skerry-sandbox/skerry/internal/skills/scan"
)

// maxTime bounds one install, from the first byte to the last.
const maxTime = 2 * time.Minute

// library keeps the skills of users; *skills.Library is one.
type library interface {
	// Add copies the files as the custom skill name of an owner, all at once or not at all. Conflict when there is one of that
	// name, also when another Add of it is under way: exactly one of them wins.
	Add(ctx context.Context, o sandbox.Owner, name string, files fs.FS, a skills.AddOptions) (sandbox.Skill, error)
}

// Fetcher gets archives by address.
type Fetcher interface {
	// Fetch returns the archive at an address such as https://host/x.skill or s3://bucket/key; the caller
	// closes it. Errors: NotFound, Forbidden (an address or a bucket that is not allowed), Invalid,
	// Unavailable.
	Fetch(ctx context.Context, url string) (io.ReadCloser, error)
}

// Registry gets skills by their names in a marketplace.
type Registry interface {
	// FetchSkill returns a .skill archive. Errors: NotFound, NotSupported, and those of fetching.
	FetchSkill(ctx context.Context, o sandbox.Owner, marketplace, skill string) (io.Reader, error)
}

// Options say how an Installer works. Library, Audit, Dir and Log are needed.
type Options struct {
	Library library
	Audit   audit.Appender
	Dir     string  // host folder for what is not installed yet, on the file system of the library; made when missing
	Fetcher Fetcher // nil: nothing is installed by address
	// Registry is the marketplaces; nil: there are none.
	Registry Registry
	Limits   archive.Limits
	// Strict refuses a skill when the static scan has an error; without, a request may ask for it.
	Strict bool
	// StrictFrontmatter refuses what the Agent Skills standard does not allow.
	StrictFrontmatter bool
	// Trust lets scripts of installed skills run without an approval, but for a skill in which the scan has an error.
	Trust bool
	Log   *slog.Logger
}

// Installer installs skills. Make one with New.
type Installer struct{ o Options }

// New makes an Installer, and deletes what a former one left in its folder.
func New(o Options) (*Installer, error) {
	if o.Library == nil || o.Audit == nil || o.Dir == "" || o.Log == nil {
		return nil, errors.New("install: an option is missing")
	}
	if o.Limits == (archive.Limits{}) {
		o.Limits = archive.DefaultLimits()
	}
	if err := os.RemoveAll(o.Dir); err != nil {
		return nil, fmt.Errorf("install: %w", err)
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("install: %w", err)
	}
	return &Installer{o}, nil
}

// Install reads an archive to its end and installs the skill in it. Errors: Invalid when it is refused, with one field
// for each finding that is to blame; Conflict when there is a skill of that name, or when it has not the
// digest that was asked for; what reading it answers.
func (i *Installer) Install(ctx context.Context, c sandbox.Caller, r io.Reader, req sandbox.SkillInstall) (sandbox.SkillInstalled, error) {
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	return i.recorded(ctx, c, req, func() (sandbox.SkillInstalled, error) { return i.install(ctx, c, r, req) })
}

// InstallURL fetches the archive at req.Source and installs it. Lists and logs have the address without its
// query, which may be a secret. NotSupported when this server fetches nothing; else as Install, and what
// fetching answers.
func (i *Installer) InstallURL(ctx context.Context, c sandbox.Caller, req sandbox.SkillInstall) (sandbox.SkillInstalled, error) {
	if i.o.Fetcher == nil {
		return sandbox.SkillInstalled{}, sandbox.Errorf(sandbox.NotSupported, "this server fetches no skills; upload the file")
	}
	address := req.Source
	req.Source = download.Shown(address)
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	return i.recorded(ctx, c, req, func() (sandbox.SkillInstalled, error) {
		r, err := i.o.Fetcher.Fetch(ctx, address)
		if err != nil {
			return sandbox.SkillInstalled{}, err
		}
		defer r.Close()
		return i.install(ctx, c, r, req)
	})
}

// InstallListed installs the skill req.Skill of req.Marketplace. NotSupported when this server has no
// marketplaces; else as Install, and what the registry answers.
func (i *Installer) InstallListed(ctx context.Context, c sandbox.Caller, req sandbox.SkillInstall) (sandbox.SkillInstalled, error) {
	if i.o.Registry == nil {
		return sandbox.SkillInstalled{}, sandbox.Errorf(sandbox.NotSupported, "this server has no marketplaces")
	}
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	req.Source = req.Skill + "@" + req.Marketplace
	return i.recorded(ctx, c, req, func() (sandbox.SkillInstalled, error) {
		r, err := i.o.Registry.FetchSkill(ctx, c.Owner, req.Marketplace, req.Skill)
		if err != nil {
			return sandbox.SkillInstalled{}, err
		}
		return i.install(ctx, c, r, req)
	})
}

// recorded calls do between the record of the attempt and that of its result.
func (i *Installer) recorded(ctx context.Context, c sandbox.Caller, req sandbox.SkillInstall, do func() (sandbox.SkillInstalled, error)) (sandbox.SkillInstalled, error) {
	rec := audit.Record{
		Tenant: c.Tenant, User: c.User, Thread: req.Thread, Action: audit.ActionSkillInstall, Subject: req.Source,
	}.By(c)
	var done sandbox.SkillInstalled
	err := audit.Do(ctx, i.o.Audit, rec, func(r *audit.Record) (err error) {
		done, err = do()
		r.BytesIn, r.Detail = done.Bytes, done.Name+" "+done.Digest
		if reason := archive.RefusedFor(err); reason != "" {
			r.Outcome, r.Detail = "denied", string(reason)
		}
		return err
	})
	return done, err
}

func (i *Installer) install(ctx context.Context, c sandbox.Caller, r io.Reader, req sandbox.SkillInstall) (sandbox.SkillInstalled, error) {
	none := sandbox.SkillInstalled{}
	staged, size, err := i.stage(ctx, r)
	if err != nil {
		return none, err
	}
	defer func() {
		if err := staged.Remove(); err != nil {
			i.o.Log.Warn("the folder of an install stays behind", "error", err)
		}
	}()
	checked, err := i.check(ctx, staged, req)
	if err != nil {
		return none, err
	}
	// The library parses SKILL.md itself: it keeps the findings of the scan only.
	dangerous := slices.ContainsFunc(checked.scanned, func(f sandbox.Finding) bool { return f.Severity == sandbox.SeverityError })
	add := skills.AddOptions{Source: req.Source, Trusted: i.o.Trust && !dangerous, Findings: checked.scanned}
	if _, err := i.o.Library.Add(ctx, c.Owner, checked.Name, os.DirFS(staged.Dir), add); err != nil {
		return none, err
	}
	checked.Bytes = size
	return checked.SkillInstalled, nil
}

// stage spools the archive, which may come from anywhere and at any pace, and unpacks it.
func (i *Installer) stage(ctx context.Context, r io.Reader) (*archive.Staged, int64, error) {
	f, err := os.CreateTemp(i.o.Dir, "upload-")
	if err != nil {
		return nil, 0, sandbox.Wrap(sandbox.Internal, err, "the archive cannot be stored")
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil { // it lives as long as it is open
		return nil, 0, sandbox.Wrap(sandbox.Internal, err, "the archive cannot be stored")
	}
	size, err := io.Copy(f, &untilDone{ctx, io.LimitReader(r, i.o.Limits.ArchiveBytes+1)})
	var known *sandbox.Error
	var host *fs.PathError
	switch {
	case ctx.Err() != nil:
		return nil, 0, ctx.Err()
	case errors.As(err, &known):
		return nil, 0, err
	case errors.As(err, &host):
		return nil, 0, sandbox.Wrap(sandbox.Internal, err, "the archive cannot be stored")
	case err != nil:
		return nil, 0, sandbox.Wrap(sandbox.Invalid, err, "the archive ended too early")
	}
	staged, err := archive.Unpack(ctx, f, size, i.o.Dir, i.o.Limits)
	return staged, size, err
}

type untilDone struct {
	ctx context.Context
	r   io.Reader
}

// Read ends with the context.
func (u *untilDone) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}

// checked is a skill that may be installed.
type checked struct {
	sandbox.SkillInstalled
	scanned []sandbox.Finding // those of the static scan
}

// check names the skill and refuses what must not be installed.
func (i *Installer) check(ctx context.Context, staged *archive.Staged, req sandbox.SkillInstall) (checked, error) {
	done := checked{}
	text, err := os.ReadFile(filepath.Join(staged.Dir, "SKILL.md")) // plain and bounded: Unpack wrote it
	if err != nil {
		return done, sandbox.Wrap(sandbox.Internal, err, "the skill cannot be read")
	}
	if done.Name, err = format.NameOf(staged.Wrapper, text); err != nil {
		return done, err
	}
	sk, findings, err := format.Parse(done.Name, text)
	if err != nil {
		return done, refuse("cannot be loaded", findings, err)
	}
	if i.o.StrictFrontmatter {
		if findings, err = lintStaged(ctx, staged, done.Name); err != nil {
			return done, err
		}
		if scan.Refuses(findings) {
			return done, refuse("does not keep to the Agent Skills standard, and this server wants that (strict_frontmatter)", findings, nil)
		}
	}
	found, err := scan.Folder(ctx, os.DirFS(staged.Dir))
	if err != nil {
		return done, err
	}
	if (i.o.Strict || req.Strict) && scan.Refuses(found) {
		return done, refuse("is refused by the static scan", found, nil)
	}
	done.Findings, done.scanned = append(findings, found...), found
	done.Description = sk.Description
	if done.Digest, err = format.Digest(os.DirFS(staged.Dir)); err != nil {
		return done, err
	}
	if req.Digest != "" && req.Digest != done.Digest {
		return done, sandbox.Errorf(sandbox.Conflict, "skill %q is another one: its digest is %s, and %.100s was asked for", done.Name, done.Digest, req.Digest)
	}
	return done, nil
}

func lintStaged(ctx context.Context, staged *archive.Staged, name string) ([]sandbox.Finding, error) {
	root, err := os.OpenRoot(staged.Dir)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the skill cannot be read")
	}
	defer root.Close() //nolint:errcheck // only read
	return lint.Apart(ctx, root, name)
}

// refuse names the findings that are to blame.
func refuse(why string, findings []sandbox.Finding, cause error) error {
	e := &sandbox.Error{Kind: sandbox.Invalid, Detail: "the skill " + why, Err: cause}
	for _, f := range findings {
		if f.Severity != sandbox.SeverityError {
			continue
		}
		where := cmp.Or(f.File, "SKILL.md")
		if f.Line > 0 {
			where = fmt.Sprintf("%s:%d", where, f.Line)
		}
		if len(e.Fields) == 0 {
			e.Detail += fmt.Sprintf(": %s: %s (%s)", where, f.Message, f.Rule)
		}
		e.Fields = append(e.Fields, sandbox.Field{Name: where, Detail: f.Rule + ": " + f.Message})
	}
	return e
}
