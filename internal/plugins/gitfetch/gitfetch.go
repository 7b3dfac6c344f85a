// Package gitfetch reads one commit of an untrusted git repository. Nothing is checked out: no work tree, no
// hooks, no filters, no submodules, no git program. What comes over the network is bounded in bytes before it is
// decoded, and the pack is measured before it is unpacked: a few bytes of delta may stand for terabytes.
package gitfetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/go-git/go-git/v5/storage/memory"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Limits bound one fetch.
type Limits struct {
	RefBytes  int64 // of the list of branches and tags
	PackBytes int64 // over the network
	Bytes     int64 // of all objects, inflated
	Objects   uint32
	Entries   int // files and folders that are looked at
}

// DefaultLimits are enough for a marketplace of hundreds of plugins.
func DefaultLimits() Limits {
	return Limits{RefBytes: 16 << 20, PackBytes: 64 << 20, Bytes: 192 << 20, Objects: 100_000, Entries: 50_000}
}

// Options say what a fetch may reach.
type Options struct {
	// Client reaches the addresses that may be reached and no others: it has to check each connection.
	Client *http.Client
	// AllowURL says whether an address may be asked at all; the error is for the caller.
	AllowURL func(u *url.URL) error
	// Folders are those of this host below which file:// may name a repository. None: no file:// at all.
	Folders []string
	Limits  Limits
	Dir     string // for files of the moment
}

// Request names a commit: by SHA, else by Ref (a branch or tag), else the default branch.
type Request struct {
	URL, Ref, SHA string
}

// Repo is one commit.
type Repo struct {
	store   storer.EncodedObjectStorer
	commit  *object.Commit
	limits  Limits
	entries int
}

// Commit is the commit's hash in hex.
func (r *Repo) Commit() string { return r.commit.Hash.String() }

// Fetch gets the commit. Errors: Forbidden (the address may not be reached), NotFound (no such repository,
// branch, tag or commit), NotSupported (ssh), Timeout, Unavailable. Also Invalid: the answer is no
// repository, or exceeds the limits.
func Fetch(ctx context.Context, q Request, o Options) (*Repo, error) {
	u, err := url.Parse(q.URL)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "the address of the repository is no URL")
	}
	var store storer.EncodedObjectStorer
	var hash plumbing.Hash
	switch u.Scheme {
	case "file":
		store, hash, err = local(u, q, o)
	case "https", "http":
		if err := o.AllowURL(u); err != nil {
			return nil, err
		}
		store, hash, err = remote(ctx, q, o)
	default:
		return nil, sandbox.Errorf(sandbox.NotSupported, "repositories are fetched by https; %.20q is not supported", u.Scheme)
	}
	if err != nil {
		return nil, explain(ctx, err)
	}
	c, err := peel(store, hash)
	if err != nil {
		return nil, explain(ctx, err)
	}
	return &Repo{store: store, commit: c, limits: o.Limits}, nil
}

// peel follows annotated tags to the commit.
func peel(store storer.EncodedObjectStorer, hash plumbing.Hash) (*object.Commit, error) {
	for range 5 {
		tag, err := object.GetTag(store, hash)
		if err != nil {
			break
		}
		hash = tag.Target
	}
	return object.GetCommit(store, hash)
}

// explain maps errors to their kind. What servers and decoders say stays in the log.
func explain(ctx context.Context, err error) error {
	var known *sandbox.Error
	switch {
	case errors.As(err, &known):
		return err
	case ctx.Err() != nil:
		return sandbox.Wrap(sandbox.Timeout, err, "the repository took too long")
	case errors.Is(err, transport.ErrRepositoryNotFound) || errors.Is(err, transport.ErrAuthenticationRequired) || errors.Is(err, transport.ErrAuthorizationFailed) || errors.Is(err, git.ErrRepositoryNotExists):
		return sandbox.Wrap(sandbox.NotFound, err, "there is no such repository, or it is not public")
	case errors.Is(err, plumbing.ErrObjectNotFound):
		return sandbox.Wrap(sandbox.NotFound, err, "the repository has no such commit")
	case errors.Is(err, plumbing.ErrReferenceNotFound):
		return sandbox.Wrap(sandbox.NotFound, err, "the repository has no such branch or tag")
	}
	return sandbox.Wrap(sandbox.Unavailable, err, "the repository cannot be fetched")
}

// local opens a repository of this host.
func local(u *url.URL, q Request, o Options) (storer.EncodedObjectStorer, plumbing.Hash, error) {
	none := plumbing.ZeroHash
	real, err := filepath.EvalSymlinks(filepath.FromSlash(u.Path))
	if err != nil || !within(real, o.Folders) {
		return nil, none, sandbox.Wrap(sandbox.Forbidden, err, "file:// is only for repositories in the folders that the server is configured for")
	}
	repo, err := git.PlainOpen(real)
	if err != nil {
		return nil, none, err
	}
	if q.SHA != "" {
		return repo.Storer, plumbing.NewHash(q.SHA), nil
	}
	for _, name := range refNames(q.Ref) {
		if ref, err := repo.Reference(name, true); err == nil {
			return repo.Storer, ref.Hash(), nil
		}
	}
	return nil, none, plumbing.ErrReferenceNotFound
}

func within(real string, folders []string) bool {
	for _, f := range folders {
		if root, err := filepath.EvalSymlinks(f); err == nil && (real == root || strings.HasPrefix(real, strings.TrimSuffix(root, "/")+"/")) {
			return true
		}
	}
	return false
}

func refNames(ref string) []plumbing.ReferenceName {
	if ref == "" {
		return []plumbing.ReferenceName{plumbing.HEAD}
	}
	return []plumbing.ReferenceName{plumbing.NewBranchReferenceName(ref), plumbing.NewTagReferenceName(ref)}
}

// remote fetches a commit, without its history where the server can.
func remote(ctx context.Context, q Request, o Options) (storer.EncodedObjectStorer, plumbing.Hash, error) {
	none := plumbing.ZeroHash
	ep, err := transport.NewEndpoint(q.URL)
	if err != nil {
		return nil, none, sandbox.Wrap(sandbox.Invalid, err, "the address of the repository is no URL")
	}
	client := *o.Client
	client.Transport = &bounded{next: o.Client.Transport, limits: o.Limits}
	s, err := githttp.NewClient(&client).NewUploadPackSession(ep, nil)
	if err != nil {
		return nil, none, err
	}
	defer s.Close() //nolint:errcheck // nothing is sent any more
	refs, err := s.AdvertisedReferencesContext(ctx)
	if err != nil {
		return nil, none, err
	}
	hash, err := choose(refs, q)
	if err != nil {
		return nil, none, err
	}
	res, err := s.UploadPack(ctx, packRequest(refs, hash))
	if err != nil {
		if q.SHA != "" && ctx.Err() == nil {
			err = sandbox.Wrap(sandbox.NotFound, err, "the repository does not give the commit %s", q.SHA)
		}
		return nil, none, err
	}
	defer res.Close() //nolint:errcheck // it was read
	store, err := unpack(ctx, res, o)
	return store, hash, err
}

func packRequest(refs *packp.AdvRefs, hash plumbing.Hash) *packp.UploadPackRequest {
	req := packp.NewUploadPackRequest()
	req.Wants = []plumbing.Hash{hash}
	set := func(c capability.Capability) bool {
		return refs.Capabilities.Supports(c) && req.Capabilities.Set(c) == nil
	}
	set(capability.OFSDelta)
	if set(capability.Shallow) {
		req.Depth = packp.DepthCommits(1)
	}
	return req
}

// choose returns the hash of what was asked for.
func choose(refs *packp.AdvRefs, q Request) (plumbing.Hash, error) {
	if q.SHA != "" {
		return plumbing.NewHash(q.SHA), nil
	}
	if q.Ref == "" {
		if refs.Head == nil {
			return plumbing.ZeroHash, plumbing.ErrReferenceNotFound
		}
		return *refs.Head, nil
	}
	for _, name := range refNames(q.Ref) {
		if h, ok := refs.References[name.String()]; ok {
			return h, nil
		}
	}
	return plumbing.ZeroHash, plumbing.ErrReferenceNotFound
}

// bounded counts what comes back.
type bounded struct {
	next   http.RoundTripper
	limits Limits
}

// RoundTrip implements http.RoundTripper.
func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	limit := b.limits.RefBytes
	if r.Method == http.MethodPost {
		limit = b.limits.PackBytes
	}
	res.Body = &counted{ReadCloser: res.Body, left: limit}
	return res, nil
}

type counted struct {
	io.ReadCloser
	left int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if c.left -= int64(n); c.left < 0 {
		return 0, errTooMuch
	}
	return n, err
}

var errTooMuch = sandbox.Errorf(sandbox.Invalid, "the repository is larger than this server takes")

// unpack stores a pack in memory, after a look at what is in it.
func unpack(ctx context.Context, r io.Reader, o Options) (storer.EncodedObjectStorer, error) {
	f, err := os.CreateTemp(o.Dir, "pack-")
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the pack cannot be stored")
	}
	defer f.Close() //nolint:errcheck // it is gone then
	if err := os.Remove(f.Name()); err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the pack cannot be stored")
	}
	if _, err := io.Copy(f, r); err != nil {
		var host *fs.PathError
		if errors.As(err, &host) {
			return nil, sandbox.Wrap(sandbox.Internal, err, "the pack cannot be stored")
		}
		return nil, err
	}
	if err := measure(ctx, f, o.Limits); err != nil {
		return nil, err
	}
	store := memory.NewStorage()
	if err := parse(f, store); err != nil {
		return nil, fmt.Errorf("pack: %w", err)
	}
	return store, ctx.Err()
}
