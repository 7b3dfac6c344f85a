package files

import (
	"context"
	"log/slog"
	"mime"
	"net/http"
	"path"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"

	"github.com/skerry-sandbox/skerry/internal/api/rest/access"
	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/service"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// archiveRoutes are the routes of archives of files.
type archiveRoutes struct {
	api      *route.API
	files    service.Files
	access   *access.Authenticator
	archives Places
	log      *slog.Logger
}

// MaxArchives is how many archives are sent or come at once: each that comes is kept whole until it is
// checked.
const MaxArchives = 16

// Places are those of clients that send or get an archive.
type Places chan struct{}

// NewPlaces returns places that are all free.
func NewPlaces() Places { return make(Places, MaxArchives) }

// Take takes a place until release is called.
func (p Places) Take() (release func(), err error) {
	select {
	case p <- struct{}{}:
		return func() { <-p }, nil
	default:
		return nil, sandbox.Errorf(sandbox.CapacityExceeded, "%d archives are on their way already; try again later", MaxArchives)
	}
}

// LeftOutHeader says how many entries of a folder are not in its archive.
const LeftOutHeader = "Skerry-Left-Out"

// archiveTypes are the types of archives, by format.
var archiveTypes = map[paths.Format]string{paths.TarGzip: "application/gzip", paths.Tar: "application/x-tar", paths.Zip: "application/zip"}

type getArchiveIn struct {
	PathIn
	Format string `query:"format" enum:"tar.gz,tar,zip" default:"tar.gz"`
}

func (s archiveRoutes) add() {
	const archive = "/api/threads/{thread}/files/archive"
	content := map[string]*huma.MediaType{}
	for _, typ := range archiveTypes {
		content[typ] = &huma.MediaType{Schema: route.Binary()}
	}
	op := route.On(http.MethodGet, archive, "getArchive", route.TagFiles, route.Agents.At(route.FileReader), "What a folder holds, as one archive with names relative to the folder")
	op.Description = "No symbolic link is followed: links, FIFOs, sockets and devices are left out, and " + LeftOutHeader + " says how many. At most 100000 entries and 8 GiB of files. " +
		"A connection that breaks off means that not all came."
	op.Responses = map[string]*huma.Response{
		"200": {Description: "OK", Content: content, Headers: map[string]*huma.Param{
			LeftOutHeader: {Description: "Links and special files that are not in the archive", Schema: &huma.Schema{Type: huma.TypeInteger}},
		}},
		"default": s.api.ProblemResponse(),
	}
	route.Register(s.api, op, s.getArchive)
	op = route.On(http.MethodPut, archive, "putArchive", route.TagFiles, route.Agents.At(route.FileWriter).Taking(route.AnyType), "Write what is in an archive (tar, tar.gz or zip, by its first bytes) into a folder, which is made")
	op.Description = "Files of the same names are replaced, the others stay. All of the archive is read and checked before anything is written: it is refused for paths that lead out of the folder, " +
		"links, special files, setuid bits, a name that is there twice, more than 100000 entries, and more bytes than 1 GiB as it is sent or than the thread has room for. Nothing goes through a symbolic link of the folder."
	op.RequestBody = &huma.RequestBody{Required: true, Content: content}
	route.Register(s.api, op, s.putArchive)
}

func (s archiveRoutes) getArchive(ctx context.Context, in *getArchiveIn) (*route.Written, error) {
	release, err := s.archives.Take()
	if err != nil {
		return nil, err
	}
	packed, err := service.View(ctx, s.files, exchange.CallerOf(ctx), in.Thread, func(f *paths.FS) (paths.Packed, error) { return f.Survey(ctx, in.Path) })
	if err != nil {
		release()
		return nil, err
	}
	return &route.Written{Body: func(c huma.Context) {
		defer release()
		x, w := exchange.Of(ctx), humagin.Unwrap(c).Writer
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer s.access.Watch(x.Request, x.Caller, cancel)()
		name := path.Base(path.Clean(in.Path)) + "." + in.Format
		h := w.Header()
		h.Set("Content-Type", archiveTypes[paths.Format(in.Format)])
		h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
		h.Set("Cache-Control", exchange.NoStore)
		h.Set(LeftOutHeader, strconv.Itoa(packed.LeftOut))
		err := s.files.ReadFiles(ctx, exchange.CallerOf(ctx), in.Thread, func(f *paths.FS) error { return f.Pack(ctx, in.Path, paths.Format(in.Format), w) })
		if err != nil {
			s.log.Warn("archive broken off", "request_id", x.ID, "error", err)
			panic(http.ErrAbortHandler) // the client is not to take it for all
		}
	}}, nil
}

func (s archiveRoutes) putArchive(ctx context.Context, in *PathIn) (*route.Body[paths.Unpacked], error) {
	release, err := s.archives.Take()
	if err != nil {
		return nil, err
	}
	defer release()
	var u paths.Unpacked
	_, err = service.Put(ctx, s.files, exchange.CallerOf(ctx), in.Thread, in.Path, func(f *paths.FS) (paths.Written, error) {
		var err error
		u, err = f.Unpack(ctx, in.Path, exchange.Body(exchange.Of(ctx).Request.Body))
		return paths.Written{Added: u.Bytes}, err
	})
	if err != nil {
		return nil, err
	}
	return route.BodyOf(u), nil
}
