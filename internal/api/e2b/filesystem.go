package e2b

import (
	"context"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skerry-sandbox/skerry/internal/api/e2b/envd/filesystem"
	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// maxDepth bounds how deep a list goes.
const maxDepth = 64

// filesystemService is filesystem.Filesystem: files of the thread, by virtual path.
type filesystemService struct{ a *Adapter }

// read calls do with the files among which the path is that the client means.
func (f *filesystemService) read(ctx context.Context, r connect.AnyRequest, name string, do func(t paths.Tree, at string) error) error {
	q, err := f.a.enter(ctx, r.Header())
	if err != nil {
		return f.a.rpcError(ctx, err)
	}
	at, err := virtual(name)
	if err == nil {
		err = f.a.readTree(ctx, q, at, func(t paths.Tree) error { return do(t, at) })
	}
	return f.a.rpcError(ctx, err)
}

// described is entryInfo with the metadata of a file. Only the thread's files have some.
func described(t paths.Tree, e paths.Entry) *filesystem.EntryInfo {
	info := entryInfo(e)
	if own, ok := t.(threadTree); ok && !e.IsDir && e.Path != "" {
		info.Metadata = own.files.Description(e.Path)
	}
	return info
}

// entryInfo is a file as E2B's daemon describes it, without its metadata.
func entryInfo(e paths.Entry) *filesystem.EntryInfo {
	bits, _ := strconv.ParseUint(e.Mode, 8, 32) // it is ours: four digits
	mode := fs.FileMode(bits) & fs.ModePerm
	info := &filesystem.EntryInfo{
		Name: path.Base(e.Path), Path: shown(e.Path), Type: filesystem.FileType_FILE_TYPE_FILE, Size: e.Bytes, Mode: uint32(mode),
		Owner: "user", Group: "user", ModifiedTime: timestamppb.New(e.ModifiedAt),
	}
	if e.IsDir {
		info.Type, info.Size = filesystem.FileType_FILE_TYPE_DIRECTORY, folderBytes
		mode |= fs.ModeDir
	}
	if e.Symlink != "" {
		target := e.Symlink
		if !path.IsAbs(target) {
			target = path.Join(path.Dir(e.Path), target)
		}
		target = shown(target)
		info.SymlinkTarget, info.IsSymlink = &target, true
	}
	info.Permissions = mode.String()
	return info
}

// folderBytes is the size that E2B's daemon tells of most folders: one block.
const folderBytes = 4096

func (f *filesystemService) Stat(ctx context.Context, r *connect.Request[filesystem.StatRequest]) (*connect.Response[filesystem.StatResponse], error) {
	out := &filesystem.StatResponse{}
	err := f.read(ctx, r, r.Msg.GetPath(), func(t paths.Tree, at string) error {
		e, err := t.Stat(ctx, at)
		out.Entry = described(t, e)
		return err
	})
	return connect.NewResponse(out), err
}

func (f *filesystemService) ListDir(ctx context.Context, r *connect.Request[filesystem.ListDirRequest]) (*connect.Response[filesystem.ListDirResponse], error) {
	depth := max(1, int(min(r.Msg.GetDepth(), maxDepth+1)))
	if depth > maxDepth {
		return nil, f.a.rpcError(ctx, sandbox.Errorf(sandbox.Invalid, "depth: at most %d", maxDepth))
	}
	out := &filesystem.ListDirResponse{}
	err := f.read(ctx, r, r.Msg.GetPath(), func(t paths.Tree, at string) error {
		l, err := t.List(ctx, at, depth, paths.MaxEntries)
		if err == nil && l.Truncated {
			err = sandbox.Errorf(sandbox.QuotaExceeded, "more than %d entries: list a folder of it, or less deep", paths.MaxEntries)
		}
		for _, e := range l.Items {
			if e.Symlink != "" && ofThread(e.Path) { // it is shown as what it leads to
				if to, err := t.Stat(ctx, e.Path); err == nil {
					e = to
				}
			}
			out.Entries = append(out.Entries, described(t, e))
		}
		return err
	})
	return connect.NewResponse(out), err
}

// change does the same as read for a change, which is recorded.
func (f *filesystemService) change(ctx context.Context, r connect.AnyRequest, action string, at []string, do func(paths.Tree) error) error {
	q, err := f.a.enter(ctx, r.Header())
	if err == nil {
		err = f.a.changeTree(ctx, q, action, strings.Join(at, " -> "), at, func(t paths.Tree) (int64, error) { return 0, do(t) })
	}
	return f.a.rpcError(ctx, err)
}

// MakeDir says AlreadyExists of a folder that is there: the SDKs tell their caller by it.
func (f *filesystemService) MakeDir(ctx context.Context, r *connect.Request[filesystem.MakeDirRequest]) (*connect.Response[filesystem.MakeDirResponse], error) {
	at, err := virtual(r.Msg.GetPath())
	if err != nil {
		return nil, f.a.rpcError(ctx, err)
	}
	out := &filesystem.MakeDirResponse{}
	err = f.change(ctx, r, audit.ActionFileMkdir, []string{at}, func(t paths.Tree) error {
		if e, err := t.Stat(ctx, at); err == nil {
			what := "file"
			if e.IsDir {
				what = "directory"
			}
			return connect.NewError(connect.CodeAlreadyExists, sandbox.Errorf(sandbox.Conflict, "%s already exists: %s", what, shown(at)))
		}
		e, err := t.Mkdir(ctx, at)
		out.Entry = described(t, e)
		return err
	})
	return connect.NewResponse(out), err
}

func (f *filesystemService) Move(ctx context.Context, r *connect.Request[filesystem.MoveRequest]) (*connect.Response[filesystem.MoveResponse], error) {
	from, err := virtual(r.Msg.GetSource())
	if err != nil {
		return nil, f.a.rpcError(ctx, err)
	}
	to, err := virtual(r.Msg.GetDestination())
	if err != nil {
		return nil, f.a.rpcError(ctx, err)
	}
	out := &filesystem.MoveResponse{}
	err = f.change(ctx, r, audit.ActionFileMove, []string{from, to}, func(t paths.Tree) error {
		e, err := t.Move(ctx, from, to)
		out.Entry = described(t, e)
		return err
	})
	return connect.NewResponse(out), err
}

// Remove takes away what is there. That nothing is there is no error, as in E2B's daemon.
func (f *filesystemService) Remove(ctx context.Context, r *connect.Request[filesystem.RemoveRequest]) (*connect.Response[filesystem.RemoveResponse], error) {
	at, err := virtual(r.Msg.GetPath())
	if err != nil {
		return nil, f.a.rpcError(ctx, err)
	}
	err = f.change(ctx, r, audit.ActionFileDelete, []string{at}, func(t paths.Tree) error {
		err := t.Remove(ctx, at)
		if sandbox.KindOf(err) == sandbox.NotFound {
			return nil
		}
		return err
	})
	return connect.NewResponse(&filesystem.RemoveResponse{}), err
}
