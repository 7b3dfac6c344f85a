package archive

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// leftOut are files and folders that belong to the making of a skill, not to the skill.
var leftOut = []string{"__pycache__", "node_modules", ".git", ".DS_Store", "__MACOSX", "Thumbs.db", "desktop.ini"}

// Pack writes the skill in folder as a .skill archive with one folder, name, around everything. The same
// files make the same bytes, whenever and wherever: entries are sorted, times are fixed, modes are 0644 and
// 0755. Caches, version control and the evals/ at the top are left out.
//
// What Unpack would refuse is refused here, with the same reasons, and so is a folder without SKILL.md. The
// folder is read through os.Root: nothing outside of it gets in.
func Pack(ctx context.Context, w io.Writer, folder, name string, l Limits) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return sandbox.Wrap(sandbox.NotFound, err, "there is no folder to pack")
	}
	defer root.Close()
	return PackFS(ctx, w, root.FS(), name, l)
}

// PackFS does the same for files that are not in a folder of this machine, such as embedded ones.
func PackFS(ctx context.Context, w io.Writer, fsys fs.FS, name string, l Limits) error {
	p := &packer{fsys: fsys, zip: zip.NewWriter(w), limits: l, names: newNameSet(), wrapper: name}
	if _, err := checkName(name, l); err != nil || strings.Contains(name, "/") {
		return sandbox.Errorf(sandbox.Invalid, "%.80q cannot be the name of a skill's folder", name)
	}
	files, err := p.list()
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := p.add(f); err != nil {
			return err
		}
	}
	if err := p.zip.Close(); err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	return nil
}

type packer struct {
	fsys    fs.FS
	zip     *zip.Writer
	limits  Limits
	names   *nameSet
	wrapper string
	bytes   int64
}

// list returns the files to pack, sorted.
func (p *packer) list() ([]string, error) {
	var files []string
	err := fs.WalkDir(p.fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fmt.Errorf("pack: %w", err)
		case name == ".":
			return nil
		case slices.Contains(leftOut, d.Name()) || strings.HasSuffix(name, ".pyc") || name == "evals" && d.IsDir():
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if _, err := checkName(name, p.limits); err != nil {
			return err
		}
		switch {
		case d.IsDir():
			return nil // empty folders are no part of a skill
		case d.Type()&fs.ModeSymlink != 0:
			return refuse(Link, name, "is a symbolic link; put the file itself in its place")
		case !d.Type().IsRegular():
			return refuse(SpecialFile, name, "is a device, pipe or socket")
		case strings.Count(name, "/") >= p.limits.Depth:
			return refuse(TooDeep, name, "is deeper than %d folders", p.limits.Depth)
		case len(files) == p.limits.Files:
			return refuse(TooManyFiles, "", "the folder has more than %d files", p.limits.Files)
		}
		files = append(files, name)
		return p.names.add(name, false)
	})
	if err != nil {
		return nil, err
	}
	if !slices.Contains(files, manifest) {
		return nil, refuse(NoSkill, "", "the folder has no %s", manifest)
	}
	slices.Sort(files)
	return files, nil
}

// epoch is the first time that a ZIP archive can say.
var epoch = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

func (p *packer) add(name string) error {
	in, err := p.fsys.Open(name)
	if err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	if !info.Mode().IsRegular() {
		return refuse(SpecialFile, name, "changed while it was packed")
	}
	data, err := io.ReadAll(io.LimitReader(in, p.limits.Bytes-p.bytes+1))
	if err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	if p.bytes += int64(len(data)); p.bytes > p.limits.Bytes {
		return refuse(TooManyBytes, name, "the files hold more than %d bytes together", p.limits.Bytes)
	}
	if kind := machineCode(data); kind != "" && !p.limits.Executables {
		return refuse(Executable, name, "is a program (%s); a skill holds scripts", kind)
	}
	h := &zip.FileHeader{Name: path.Join(p.wrapper, name), Method: zip.Deflate}
	h.Modified = epoch
	h.SetMode(0o644)
	if info.Mode()&0o111 != 0 {
		h.SetMode(0o755)
	}
	out, err := p.zip.CreateHeader(h)
	if err == nil {
		_, err = out.Write(data)
	}
	if err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	return nil
}

// RefusedFor returns the reason of an error of Unpack or Pack, "" when it was another kind of error.
func RefusedFor(err error) Reason {
	var r *Refusal
	if errors.As(err, &r) {
		return r.Reason
	}
	return ""
}
