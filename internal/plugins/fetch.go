package plugins

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/platform/download"
	"github.com/skerry-sandbox/skerry/internal/plugins/gitfetch"
	"github.com/skerry-sandbox/skerry/internal/plugins/tree"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/archive"
)

// SourceFolder is a Source of a folder of this host, in Path. Only what the server is configured for may be one.
const SourceFolder = "folder"

// fetcher gets what a Source names.
type fetcher struct {
	web     *download.Client
	folders []string // of this host that may be read
	dir     string   // for what is not installed yet
}

// fetched is what a Source returned.
type fetched struct {
	*archive.Staged
	source sandbox.PluginSource
	left   []string // files that are no part of it: links that leave, submodules
}

// fetch gets a Source into a folder of its own, which the caller removes.
func (f *fetcher) fetch(ctx context.Context, s Source) (*fetched, error) {
	if s.Kind != SourceFolder {
		if bad := s.check(); bad != "" {
			return nil, sandbox.Errorf(sandbox.Invalid, "the source cannot be used: %s", bad)
		}
	}
	switch s.Kind {
	case SourceGit:
		return f.fetchGit(ctx, s)
	case SourceArchive:
		return f.fetchArchive(ctx, s)
	case SourceFolder:
		return f.fetchFolder(ctx, s)
	}
	return nil, sandbox.Errorf(sandbox.Invalid, "a source is git, archive or folder, not %.40q", s.Kind)
}

func (f *fetcher) repo(ctx context.Context, s Source) (*gitfetch.Repo, error) {
	repo, err := gitfetch.Fetch(ctx, gitfetch.Request{URL: s.URL, Ref: s.Ref, SHA: s.SHA}, gitfetch.Options{
		Client: f.web.HTTP(), AllowURL: f.web.Allow, Folders: f.folders, Limits: gitfetch.DefaultLimits(), Dir: f.dir,
	})
	return repo, download.Explain(err)
}

func (f *fetcher) fetchGit(ctx context.Context, s Source) (*fetched, error) {
	repo, err := f.repo(ctx, s)
	if err != nil {
		return nil, err
	}
	got := &fetched{source: sandbox.PluginSource{Kind: SourceGit, From: download.Shown(s.URL), Ref: s.Ref, Commit: repo.Commit(), Path: s.Path}}
	err = f.fill(got, func(to *archive.Folder) (err error) {
		got.left, err = repo.Walk(folderOf(s.Path), func(name string, exec bool, r io.Reader) error { return to.Add(ctx, name, exec, r) })
		return err
	})
	return got, err
}

func folderOf(p string) string {
	if p == "" {
		return "."
	}
	return p
}

// fill makes the folder; when that fails, nothing stays.
func (f *fetcher) fill(got *fetched, add func(*archive.Folder) error) error {
	to, err := archive.NewFolder(f.dir, tree.Limits())
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the plugin cannot be stored")
	}
	if err := add(to); err != nil {
		return errors.Join(stageError(err), to.Remove())
	}
	got.Staged, err = to.Done()
	return err
}

// stageError adds a kind to what is no error for callers.
func stageError(err error) error {
	var known *sandbox.Error
	if errors.As(err, &known) {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return sandbox.Wrap(sandbox.Timeout, err, "it took too long")
	}
	return sandbox.Wrap(sandbox.Internal, err, "the plugin cannot be stored")
}

func (f *fetcher) fetchArchive(ctx context.Context, s Source) (*fetched, error) {
	body, err := f.web.Fetch(ctx, s.URL)
	if err != nil {
		return nil, err
	}
	defer body.Close() //nolint:errcheck // it was read
	return f.unpack(ctx, body, s)
}

// unpack takes an archive, ZIP or tar, as it comes.
func (f *fetcher) unpack(ctx context.Context, r io.Reader, s Source) (*fetched, error) {
	l := tree.Limits()
	file, err := os.CreateTemp(f.dir, "archive-")
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the archive cannot be stored")
	}
	defer file.Close() //nolint:errcheck // it is gone then
	if err := os.Remove(file.Name()); err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the archive cannot be stored")
	}
	sum := sha256.New()
	size, err := io.Copy(io.MultiWriter(file, sum), &untilDone{ctx, io.LimitReader(r, l.ArchiveBytes+1)})
	var host *fs.PathError
	var known *sandbox.Error
	hash := hex.EncodeToString(sum.Sum(nil))
	switch {
	case ctx.Err() != nil:
		return nil, sandbox.Wrap(sandbox.Timeout, ctx.Err(), "the archive took too long")
	case errors.As(err, &known):
		return nil, err
	case errors.As(err, &host):
		return nil, sandbox.Wrap(sandbox.Internal, err, "the archive cannot be stored")
	case err != nil:
		return nil, sandbox.Wrap(sandbox.Invalid, err, "the archive ended too early")
	case size > l.ArchiveBytes:
		return nil, sandbox.Errorf(sandbox.Invalid, "the archive has more than %d bytes", l.ArchiveBytes)
	case s.SHA256 != "" && s.SHA256 != hash:
		return nil, sandbox.Errorf(sandbox.Conflict, "the archive is another one: its sha256 is %s, and %s was asked for", hash, s.SHA256)
	}
	got := &fetched{source: sandbox.PluginSource{Kind: SourceArchive, From: download.Shown(s.URL), Path: s.Path, SHA256: hash}}
	if got.Staged, err = f.extract(ctx, file, size); err != nil {
		return nil, stageError(err)
	}
	return got, f.narrow(got, s.Path)
}

func (f *fetcher) extract(ctx context.Context, file *os.File, size int64) (*archive.Staged, error) {
	head := make([]byte, 4)
	if _, err := file.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if bytes.HasPrefix(head, []byte("PK")) {
		return archive.UnpackTree(ctx, file, size, f.dir, tree.Limits(), belongs)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return archive.UnpackTar(ctx, file, f.dir, tree.Limits(), belongs)
}

// belongs tells the folders of a plugin from one around it.
func belongs(top string) bool {
	return slices.Contains([]string{".claude-plugin", "skills", "commands", "agents", "hooks"}, top)
}

// narrow keeps one folder of what was unpacked.
func (f *fetcher) narrow(got *fetched, sub string) error {
	if folderOf(sub) == "." {
		return nil
	}
	whole := got.Dir
	inner := filepath.Join(whole, filepath.FromSlash(sub)) // there are no links in what was unpacked
	if info, err := os.Lstat(inner); err != nil || !info.IsDir() {
		return errors.Join(sandbox.Errorf(sandbox.NotFound, "the archive has no folder %.200q", sub), os.RemoveAll(whole))
	}
	to, err := os.MkdirTemp(f.dir, ".narrow-")
	if err == nil {
		err = os.Remove(to)
	}
	if err == nil {
		err = os.Rename(inner, to)
	}
	if err = errors.Join(err, os.RemoveAll(whole)); err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the plugin cannot be stored")
	}
	got.Dir = to
	return nil
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

// fetchFolder copies a folder of this host. URL is the folder that links may not leave, "" for Path itself.
func (f *fetcher) fetchFolder(ctx context.Context, s Source) (*fetched, error) {
	base := s.URL
	real, err := filepath.EvalSymlinks(base)
	if err != nil || !slices.ContainsFunc(f.folders, func(dir string) bool { return inFolder(real, dir) }) {
		return nil, sandbox.Wrap(sandbox.Forbidden, err, "the server is not configured to read that folder")
	}
	root, err := os.OpenRoot(real)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.NotFound, err, "there is no such folder")
	}
	defer root.Close() //nolint:errcheck // it was read
	got := &fetched{source: sandbox.PluginSource{Kind: SourceFolder, From: filepath.Base(real), Path: s.Path}}
	err = f.fill(got, func(to *archive.Folder) error { return tree.Copy(ctx, root, folderOf(s.Path), to, &got.left) })
	return got, err
}

func inFolder(real, dir string) bool {
	root, err := filepath.EvalSymlinks(dir)
	return err == nil && (real == root || strings.HasPrefix(real, strings.TrimSuffix(root, "/")+"/"))
}
