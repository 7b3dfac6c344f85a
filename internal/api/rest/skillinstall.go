package rest

import (
	"context"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/service"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// skillInstallRoutes are the routes of installing skills.
type skillInstallRoutes struct {
	installs service.SkillInstalls // nil: the server installs none
	files    service.Files
}

// maxInstallJSON bounds the JSON of a request to install.
const maxInstallJSON = 16 << 10

type skillInstallIn struct {
	Digest string `query:"digest" maxLength:"100" pattern:"^sha256:[0-9a-f]{64}$" doc:"Install only this very skill; conflict otherwise"`
	Strict bool   `query:"strict" doc:"Refuse the skill when the static scan has an error"`
}

// skillInstallBody is the body of a request that is no upload: thread_id and path, marketplace and skill, or
// url.
type skillInstallBody struct {
	ThreadID string `json:"thread_id,omitempty" pattern:"^[A-Za-z0-9_-]{1,128}$"`
	Path     string `json:"path,omitempty" maxLength:"4096" doc:"Virtual path of a .skill file in that thread"`
	// Marketplace and Skill are an entry of a marketplace that was added.
	Marketplace string `json:"marketplace,omitempty" maxLength:"64"`
	Skill       string `json:"skill,omitempty" maxLength:"64" doc:"Of the marketplace"`
	URL         string `json:"url,omitempty" maxLength:"2048" doc:"https://… of a .skill file, or s3://bucket/key of a bucket that the server is configured for"`
}

// skillInstalled is the answer to an install.
type skillInstalled struct {
	Success   bool              `json:"success"`
	SkillName string            `json:"skill_name"`
	Message   string            `json:"message"`
	Digest    string            `json:"digest" doc:"sha256: and 64 hex digits, of all files"`
	Findings  []sandbox.Finding `json:"findings" doc:"Findings about SKILL.md and of the static scan; errors are refused with strict only"`
}

func (s skillInstallRoutes) add(api *route.API) {
	const install = "/api/skills/install"
	op := route.On(http.MethodPost, install, "installSkill", route.TagSkills, route.Developers.Taking("application/json", "multipart/form-data"),
		"Install a .skill archive as a custom skill: of a thread (thread_id, path), at an address (url), of a marketplace (marketplace, skill), or uploaded as the only file of a form")
	route.Register(api, op, s.installSkill)
	// A form is streamed, so huma must not know of the body before the route is registered.
	schema := huma.SchemaFromType(api.OpenAPI().Components.Schemas, reflect.TypeFor[skillInstallBody]())
	api.OpenAPI().Paths[install].Post.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		"application/json":    {Schema: schema},
		"multipart/form-data": {Schema: &huma.Schema{Type: huma.TypeObject, Properties: map[string]*huma.Schema{"file": route.Binary()}}},
	}}
}

func (s skillInstallRoutes) installSkill(ctx context.Context, in *skillInstallIn) (*route.Body[skillInstalled], error) {
	if s.installs == nil {
		return nil, sandbox.Errorf(sandbox.NotSupported, "this server installs no skills")
	}
	req := sandbox.SkillInstall{Digest: in.Digest, Strict: in.Strict}
	r := exchange.Of(ctx).Request
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "a body is missing: {thread_id, path}, {url}, {marketplace, skill}, or a form with a file")
	}
	var done sandbox.SkillInstalled
	if kind == "multipart/form-data" {
		done, err = s.installUpload(ctx, r, req)
	} else {
		done, err = s.installNamed(ctx, r, req)
	}
	if err != nil {
		return nil, err
	}
	if done.Findings == nil {
		done.Findings = []sandbox.Finding{}
	}
	return route.BodyOf(skillInstalled{
		Success: true, SkillName: done.Name, Message: "skill " + done.Name + " is installed", Digest: done.Digest, Findings: done.Findings,
	}), nil
}

// installUpload installs the first file of a form.
func (s skillInstallRoutes) installUpload(ctx context.Context, r *http.Request, req sandbox.SkillInstall) (sandbox.SkillInstalled, error) {
	name, content, err := exchange.FirstFile(r)
	if err != nil {
		return sandbox.SkillInstalled{}, err
	}
	req.Source = "upload " + path.Base("/"+cutName(name))
	return s.installs.Install(ctx, exchange.CallerOf(ctx), content, req)
}

func cutName(name string) string { return name[:min(len(name), 200)] }

// installNamed installs a file of a thread, or one at an address.
func (s skillInstallRoutes) installNamed(ctx context.Context, r *http.Request, req sandbox.SkillInstall) (sandbox.SkillInstalled, error) {
	var b skillInstallBody
	none := sandbox.SkillInstalled{}
	dec := json.NewDecoder(io.LimitReader(exchange.Body(r.Body), maxInstallJSON))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&b); err != nil {
		return none, sandbox.Wrap(sandbox.Invalid, err, "the body is not {thread_id, path}, {url} or {marketplace, skill}")
	}
	if err := checkBounds(b); err != nil {
		return none, err
	}
	ofThread, atURL, listed := b.ThreadID != "" || b.Path != "", b.URL != "", b.Marketplace != "" || b.Skill != ""
	switch {
	case atURL && !ofThread && !listed:
		req.Source = b.URL
		return s.installs.InstallURL(ctx, exchange.CallerOf(ctx), req)
	case listed && !ofThread && !atURL && b.Marketplace != "" && b.Skill != "":
		req.Marketplace, req.Skill = b.Marketplace, b.Skill
		return s.installs.InstallListed(ctx, exchange.CallerOf(ctx), req)
	case atURL || listed || b.ThreadID == "" || b.Path == "":
		return none, sandbox.Errorf(sandbox.Invalid, "give thread_id and path, marketplace and skill, or url alone")
	case slices.Contains(strings.Split(b.Path, "/"), ".."):
		return none, sandbox.Errorf(sandbox.Forbidden, "the path leaves the thread's files")
	}
	req.Thread, req.Source = b.ThreadID, b.Path
	return service.View(ctx, s.files, exchange.CallerOf(ctx), b.ThreadID, func(f *paths.FS) (sandbox.SkillInstalled, error) {
		// Opened within the install, so that a file that is not there or leads out is in the audit log, too.
		file := &lateFile{fs: f, path: b.Path}
		defer file.close()
		return s.installs.Install(ctx, exchange.CallerOf(ctx), file, req)
	})
}

// lateFile is a file of a thread that is opened when it is first read.
type lateFile struct {
	fs   *paths.FS
	path string
	file *paths.File
}

func (l *lateFile) Read(p []byte) (n int, err error) {
	if l.file == nil {
		if l.file, err = l.fs.Open(l.path); err != nil {
			return 0, err
		}
	}
	return l.file.Read(p)
}

func (l *lateFile) close() {
	if l.file != nil {
		_ = l.file.Close() // it was read
	}
}
