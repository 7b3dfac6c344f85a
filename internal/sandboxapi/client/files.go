package client

import (
	"context"
	"errors"
	"io"

	"connectrpc.com/connect"

	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/sandboxapi/v1/sandboxv1connect"
)

// maxListed bounds a listing.
const maxListed = 100_000

// Stat describes a file or folder; a link is not followed. NotFound, Forbidden.
func (c *Client) Stat(ctx context.Context, path string) (*sandboxv1.FileInfo, error) {
	res, err := call(ctx, c, &sandboxv1.StatRequest{Path: path},
		func(api sandboxv1connect.SandboxServiceClient, ctx context.Context, r *connect.Request[sandboxv1.StatRequest]) (*connect.Response[sandboxv1.FileInfo], error) {
			return api.Stat(ctx, r)
		})
	return checkInfo(res, err)
}

// ListDir lists a folder, depth levels deep (1 = its own entries), at most limit entries.
func (c *Client) ListDir(ctx context.Context, path string, depth, limit uint32) (*sandboxv1.ListDirResponse, error) {
	res, err := call(ctx, c, &sandboxv1.ListDirRequest{Path: path, Depth: depth, Limit: min(limit, maxListed)},
		func(api sandboxv1connect.SandboxServiceClient, ctx context.Context, r *connect.Request[sandboxv1.ListDirRequest]) (*connect.Response[sandboxv1.ListDirResponse], error) {
			return api.ListDir(ctx, r)
		})
	if err != nil {
		return nil, err
	}
	if len(res.GetItems()) > maxListed {
		return nil, contractError("a listing of %d entries", len(res.GetItems()))
	}
	for _, i := range res.GetItems() {
		if _, err := checkInfo(i, nil); err != nil {
			return nil, err
		}
	}
	return res, nil
}

// ReadFile writes a file, or limit bytes of it from offset on (limit 0: to its end), to w. It returns
// how many bytes there were.
func (c *Client) ReadFile(ctx context.Context, path string, offset, limit int64, w io.Writer) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	api, _, err := c.reach(ctx)
	if err != nil {
		return 0, err
	}
	s, err := api.ReadFile(ctx, connect.NewRequest(&sandboxv1.ReadFileRequest{Path: path, Offset: offset, Limit: limit}))
	if err != nil {
		return 0, mapError(ctx, err)
	}
	defer s.Close()
	defer cancel()
	var n int64
	for s.Receive() {
		data := s.Msg().GetData()
		if len(data) == 0 { // a stream of them would have no end
			return n, contractError("an empty part of a file")
		}
		if n += int64(len(data)); limit > 0 && n > limit {
			return n, contractError("more of the file than was asked for")
		}
		if _, err := w.Write(data); err != nil {
			return n, err
		}
	}
	if err := s.Err(); err != nil {
		return n, mapError(ctx, err)
	}
	return n, nil
}

// WriteFile writes r to a file. Unless it appends, the file is replaced in one step at the end, and
// left as it was when anything fails.
func (c *Client) WriteFile(ctx context.Context, path string, appendTo bool, r io.Reader) (*sandboxv1.FileInfo, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	api, _, err := c.reach(ctx)
	if err != nil {
		return nil, err
	}
	s := api.WriteFile(ctx)
	buf := make([]byte, fileChunk)
	for first := true; ; first = false {
		n, err := io.ReadFull(r, buf)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, err // cancel tells sandboxd to drop what it has
		}
		if n > 0 || first {
			m := &sandboxv1.WriteFileRequest{Data: buf[:n]}
			if first {
				m.Path, m.Append = path, appendTo
			}
			if s.Send(m) != nil {
				break // CloseAndReceive tells why
			}
		}
		if err != nil {
			break
		}
	}
	res, err := s.CloseAndReceive()
	if err != nil {
		return nil, mapError(ctx, err)
	}
	return checkInfo(res.Msg, nil)
}

// MakeDir makes a folder and its parents. It is no error when it is there.
func (c *Client) MakeDir(ctx context.Context, path string) (*sandboxv1.FileInfo, error) {
	res, err := call(ctx, c, &sandboxv1.MakeDirRequest{Path: path},
		func(api sandboxv1connect.SandboxServiceClient, ctx context.Context, r *connect.Request[sandboxv1.MakeDirRequest]) (*connect.Response[sandboxv1.FileInfo], error) {
			return api.MakeDir(ctx, r)
		})
	return checkInfo(res, err)
}

// Move renames a file or folder. Conflict: the target is there. It is not tried again.
func (c *Client) Move(ctx context.Context, from, to string) (*sandboxv1.FileInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	api, _, err := c.reach(ctx)
	if err != nil {
		return nil, err
	}
	res, err := api.Move(ctx, connect.NewRequest(&sandboxv1.MoveRequest{From: from, To: to}))
	if err != nil {
		return nil, mapError(ctx, err)
	}
	return checkInfo(res.Msg, nil)
}

// Remove removes a file or an empty folder, with recursive a whole folder. NotFound when it is not
// there. It is not tried again.
func (c *Client) Remove(ctx context.Context, path string, recursive bool) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	api, _, err := c.reach(ctx)
	if err != nil {
		return err
	}
	if _, err := api.Remove(ctx, connect.NewRequest(&sandboxv1.RemoveRequest{Path: path, Recursive: recursive})); err != nil {
		return mapError(ctx, err)
	}
	return nil
}

func checkInfo(i *sandboxv1.FileInfo, err error) (*sandboxv1.FileInfo, error) {
	if err != nil {
		return nil, err
	}
	if len(i.GetPath()) > maxPath || len(i.GetSymlink()) > maxPath || i.GetBytes() < 0 {
		return nil, contractError("a file of %d bytes with a name of %d", i.GetBytes(), len(i.GetPath()))
	}
	return i, nil
}
