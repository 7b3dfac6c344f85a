package sandboxd

import (
	"context"
	"errors"
	"io"
	"io/fs"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/sandboxd/files"
)

const (
	fileChunk = 256 << 10
	maxListed = 100_000
)

func fileError(err error) error {
	code := connect.CodeInternal
	switch {
	case errors.Is(err, files.ErrOutside), errors.Is(err, files.ErrReadOnly), errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS),
		errors.Is(err, unix.ELOOP), isEscape(err):
		code = connect.CodePermissionDenied
	case errors.Is(err, fs.ErrNotExist):
		code = connect.CodeNotFound
	case errors.Is(err, fs.ErrExist):
		code = connect.CodeAlreadyExists
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EFBIG), errors.Is(err, unix.EMFILE):
		code = connect.CodeResourceExhausted
	case errors.Is(err, files.ErrNotRegular), errors.Is(err, files.ErrNotDir), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EISDIR),
		errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EXDEV), errors.Is(err, unix.ENXIO):
		code = connect.CodeFailedPrecondition
	case errors.Is(err, unix.ENAMETOOLONG), errors.Is(err, unix.EINVAL):
		code = connect.CodeInvalidArgument
	}
	return connect.NewError(code, err)
}

// isEscape knows the error of os.Root for a link that leads out of it: package os exports no name
// for it.
func isEscape(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if err.Error() == "path escapes from parent" {
			return true
		}
	}
	return false
}

func infoToProto(i files.Info) *sandboxv1.FileInfo {
	return &sandboxv1.FileInfo{
		Path: i.Path, IsDir: i.IsDir, Bytes: i.Bytes, Mode: uint32(i.Mode.Perm()), ModifiedUnixMs: i.Modified.UnixMilli(), Symlink: i.Symlink,
	}
}

func infoAnswer(i files.Info, err error) (*connect.Response[sandboxv1.FileInfo], error) {
	if err != nil {
		return nil, fileError(err)
	}
	return connect.NewResponse(infoToProto(i)), nil
}

func (s *service) Stat(_ context.Context, req *connect.Request[sandboxv1.StatRequest]) (*connect.Response[sandboxv1.FileInfo], error) {
	return infoAnswer(s.files.Stat(req.Msg.GetPath()))
}

func (s *service) ListDir(_ context.Context, req *connect.Request[sandboxv1.ListDirRequest]) (*connect.Response[sandboxv1.ListDirResponse], error) {
	limit := min(int(req.Msg.GetLimit()), maxListed)
	if limit == 0 {
		limit = maxListed
	}
	items, truncated, err := s.files.List(req.Msg.GetPath(), int(min(req.Msg.GetDepth(), 1<<16)), limit)
	if err != nil {
		return nil, fileError(err)
	}
	res := &sandboxv1.ListDirResponse{Truncated: truncated}
	for _, i := range items {
		res.Items = append(res.Items, infoToProto(i))
	}
	return connect.NewResponse(res), nil
}

func (s *service) ReadFile(_ context.Context, req *connect.Request[sandboxv1.ReadFileRequest], stream *connect.ServerStream[sandboxv1.FileChunk]) error {
	if req.Msg.GetOffset() < 0 || req.Msg.GetLimit() < 0 {
		return connect.NewError(connect.CodeInvalidArgument, errors.New("offset and limit must not be negative"))
	}
	f, err := s.files.Open(req.Msg.GetPath())
	if err != nil {
		return fileError(err)
	}
	defer f.Close()
	if _, err := f.Seek(req.Msg.GetOffset(), io.SeekStart); err != nil {
		return fileError(err)
	}
	var r io.Reader = f
	if n := req.Msg.GetLimit(); n > 0 {
		r = io.LimitReader(f, n)
	}
	buf := make([]byte, fileChunk)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if err := stream.Send(&sandboxv1.FileChunk{Data: buf[:n]}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fileError(err)
		}
	}
}

func (s *service) WriteFile(_ context.Context, stream *connect.ClientStream[sandboxv1.WriteFileRequest]) (*connect.Response[sandboxv1.FileInfo], error) {
	if !stream.Receive() {
		if err := stream.Err(); err != nil {
			return nil, err
		}
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("no message"))
	}
	w, err := s.files.Create(stream.Msg().GetPath(), stream.Msg().GetAppend())
	if err != nil {
		return nil, fileError(err)
	}
	for {
		if _, err := w.Write(stream.Msg().GetData()); err != nil {
			w.Abort()
			return nil, fileError(err)
		}
		if !stream.Receive() {
			break
		}
	}
	if err := stream.Err(); err != nil {
		w.Abort()
		return nil, err
	}
	return infoAnswer(w.Commit())
}

func (s *service) MakeDir(_ context.Context, req *connect.Request[sandboxv1.MakeDirRequest]) (*connect.Response[sandboxv1.FileInfo], error) {
	return infoAnswer(s.files.MakeDir(req.Msg.GetPath()))
}

func (s *service) Move(_ context.Context, req *connect.Request[sandboxv1.MoveRequest]) (*connect.Response[sandboxv1.FileInfo], error) {
	return infoAnswer(s.files.Move(req.Msg.GetFrom(), req.Msg.GetTo()))
}

func (s *service) Remove(_ context.Context, req *connect.Request[sandboxv1.RemoveRequest]) (*connect.Response[sandboxv1.RemoveResponse], error) {
	if err := s.files.Remove(req.Msg.GetPath(), req.Msg.GetRecursive()); err != nil {
		return nil, fileError(err)
	}
	return connect.NewResponse(&sandboxv1.RemoveResponse{}), nil
}
