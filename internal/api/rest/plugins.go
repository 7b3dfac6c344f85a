package rest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/service"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// pluginRoutes are the routes of plugins.
type pluginRoutes struct{ *server }

var errNoPlugins = sandbox.Errorf(sandbox.NotSupported, "this server has no plugins")

// PluginIn names a plugin.
type PluginIn struct {
	Name string `path:"name" maxLength:"64"`
}

type pluginChange struct {
	Enabled *bool          `json:"enabled,omitempty"`
	Config  map[string]any `json:"config,omitempty" doc:"Values that the plugin asks for: null removes one, *** keeps a sensitive one"`
}

// SourceBody names a plugin or a marketplace. It is exported because huma sees only exported fields where it is embedded.
type SourceBody struct {
	Source string `json:"source,omitempty" maxLength:"2048" doc:"owner/name on GitHub, the URL of a git repository or of an archive (.zip, .tar.gz), or a folder that the server is configured for"`
	Kind   string `json:"kind,omitempty" enum:"git,archive,folder" doc:"When it does not follow from the source"`
	Ref    string `json:"ref,omitempty" maxLength:"200" doc:"Branch or tag"`
	SHA    string `json:"sha,omitempty" maxLength:"40" doc:"Commit; it wins over ref"`
	SHA256 string `json:"sha256,omitempty" maxLength:"64" doc:"Of an archive"`
	Folder string `json:"folder,omitempty" maxLength:"512" doc:"Within the source"`
	// Replace is for both: a plugin of that name, a marketplace of that name from elsewhere.
	Replace bool `json:"replace,omitempty" doc:"In place of one of that name"`
}

// installBody is the body of an install that is no upload: source, or marketplace and plugin, or thread_id and path.
type installBody struct {
	SourceBody
	Marketplace string `json:"marketplace,omitempty" maxLength:"64"`
	Plugin      string `json:"plugin,omitempty" maxLength:"64" doc:"Of the marketplace"`
	ThreadID    string `json:"thread_id,omitempty" pattern:"^[A-Za-z0-9_-]{1,128}$"`
	Path        string `json:"path,omitempty" maxLength:"4096" doc:"Virtual path of an archive in that thread"`
}

type pluginInstallIn struct {
	Digest  string `query:"digest" maxLength:"100" pattern:"^sha256:[0-9a-f]{64}$" doc:"Install only this very plugin; conflict otherwise"`
	Shared  bool   `query:"shared" doc:"For all users of the tenant; administrators only"`
	Strict  bool   `query:"strict" doc:"Refuse the plugin when the static scan of its files has an error"`
	Enabled bool   `query:"enabled" default:"true"`
	Replace bool   `query:"replace" doc:"In place of one of that name"`
}

// pluginInstalled is the answer to an install.
type pluginInstalled struct {
	Success    bool              `json:"success"`
	PluginName string            `json:"plugin_name"`
	Message    string            `json:"message"`
	Plugin     sandbox.Plugin    `json:"plugin"`
	Findings   []sandbox.Finding `json:"findings"`
}

type commandArgs struct {
	Args string `json:"args,omitempty" maxLength:"65536"`
}

func (s pluginRoutes) add() {
	register(s.server, s.api, on(http.MethodGet, "/api/plugins", "listPlugins", tagSkills, agents, "The caller's plugins"), s.listPlugins)
	register(s.server, s.api, on(http.MethodGet, "/api/plugins/{name}", "getPlugin", tagSkills, agents, "One plugin"), s.getPlugin)
	register(s.server, s.api, on(http.MethodPut, "/api/plugins/{name}", "changePlugin", tagSkills, developers, "Switch a plugin on or off, and set values that it asks for"), s.changePlugin)
	register(s.server, s.api, on(http.MethodDelete, "/api/plugins/{name}", "removePlugin", tagSkills, developers, "Remove a plugin with its files and all that was said of it"), s.removePlugin)
	const route = "/api/plugins/install"
	register(s.server, s.api, on(http.MethodPost, route, "installPlugin", tagSkills, developers,
		"Install a plugin: from a source, a marketplace (marketplace, plugin), an archive of a thread (thread_id, path), or uploaded as the only file of a form"), s.installPlugin)
	// A form is streamed, so huma must not know of the body before the route is registered.
	schema := huma.SchemaFromType(s.api.OpenAPI().Components.Schemas, reflect.TypeFor[installBody]())
	s.api.OpenAPI().Paths[route].Post.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		"application/json":    {Schema: schema},
		"multipart/form-data": {Schema: &huma.Schema{Type: huma.TypeObject, Properties: map[string]*huma.Schema{"file": binary()}}},
	}}
	register(s.server, s.api, on(http.MethodGet, "/api/plugins/{name}/commands", "listPluginCommands", tagSkills, agents, "The commands of a plugin"), s.pluginCommands)
	register(s.server, s.api, on(http.MethodPost, "/api/threads/{thread}/commands/{plugin}/{command}", "invokeCommand", tagSkills, agents.at(Holder),
		"The text of a command with its arguments put in, ready to be the user's message"), s.invokeCommand)
	register(s.server, s.api, on(http.MethodGet, "/api/marketplaces", "listMarketplaces", tagSkills, agents, "Marketplaces that were added"), s.listMarketplaces)
	register(s.server, s.api, on(http.MethodPost, "/api/marketplaces", "addMarketplace", tagAdmin, admins, "Add a marketplace, or read one anew"), s.addMarketplace)
	register(s.server, s.api, on(http.MethodDelete, "/api/marketplaces/{name}", "removeMarketplace", tagAdmin, admins, "Remove a marketplace; what was installed from it stays"), s.removeMarketplace)
}

func (s pluginRoutes) listPlugins(ctx context.Context, in *ListIn) (*body[page[sandbox.Plugin]], error) {
	if s.o.Plugins == nil {
		return pageOf([]sandbox.Plugin{}, ""), nil
	}
	list, err := s.o.Plugins.List(ctx, callerOf(ctx))
	if err != nil {
		return nil, err
	}
	return pageIn(*in, list, pluginKey)
}

func (s pluginRoutes) getPlugin(ctx context.Context, in *PluginIn) (*body[sandbox.Plugin], error) {
	if s.o.Plugins == nil {
		return nil, errNoPlugins
	}
	p, err := s.o.Plugins.Get(ctx, callerOf(ctx), in.Name)
	if err != nil {
		return nil, err
	}
	return bodyOf(p), nil
}

func (s pluginRoutes) changePlugin(ctx context.Context, in *struct {
	PluginIn
	Body pluginChange
},
) (*body[sandbox.Plugin], error) {
	if s.o.Plugins == nil {
		return nil, errNoPlugins
	}
	if in.Body.Enabled == nil && len(in.Body.Config) == 0 {
		return nil, sandbox.Errorf(sandbox.Invalid, "give enabled, config, or both")
	}
	p, err := s.o.Plugins.Change(ctx, callerOf(ctx), in.Name, in.Body.Enabled, in.Body.Config)
	if err != nil {
		return nil, err
	}
	return bodyOf(p), nil
}

func (s pluginRoutes) removePlugin(ctx context.Context, in *PluginIn) (*struct{}, error) {
	if s.o.Plugins == nil {
		return nil, errNoPlugins
	}
	return nil, s.o.Plugins.Remove(ctx, callerOf(ctx), in.Name)
}

func (s pluginRoutes) installPlugin(ctx context.Context, in *pluginInstallIn) (*body[pluginInstalled], error) {
	if s.o.Plugins == nil {
		return nil, errNoPlugins
	}
	req := sandbox.PluginInstall{Digest: in.Digest, Shared: in.Shared, Strict: in.Strict, Disabled: !in.Enabled, Replace: in.Replace}
	r := exchangeOf(ctx).req
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "a body is missing: {source}, {marketplace, plugin}, {thread_id, path}, or a form with a file")
	}
	var p sandbox.Plugin
	if kind == "multipart/form-data" {
		p, err = s.installPluginUpload(ctx, r, req)
	} else {
		p, err = s.installPluginNamed(ctx, r, req)
	}
	if err != nil {
		return nil, err
	}
	return bodyOf(pluginInstalled{Success: true, PluginName: p.Name, Message: "plugin " + p.Name + " is installed", Plugin: p, Findings: p.Findings}), nil
}

// installPluginUpload installs the first file of a form.
func (s pluginRoutes) installPluginUpload(ctx context.Context, r *http.Request, req sandbox.PluginInstall) (sandbox.Plugin, error) {
	none := sandbox.Plugin{}
	form, err := r.MultipartReader()
	if err != nil {
		return none, sandbox.Errorf(sandbox.Invalid, "the body is no multipart form")
	}
	for parts := 0; ; parts++ {
		part, err := form.NextRawPart()
		switch {
		case errors.Is(err, io.EOF) || parts > maxFormParts:
			return none, sandbox.Errorf(sandbox.Invalid, "the form has no file in it")
		case err != nil:
			return none, sandbox.Wrap(sandbox.Invalid, err, "the form ended too early, or is broken")
		}
		if name, isFile := fileName(part); isFile {
			req.From = path.Base("/" + cutName(name))
			return s.o.Plugins.Install(ctx, callerOf(ctx), &upload{r: part}, req)
		}
	}
}

// installPluginNamed installs what the JSON names.
func (s pluginRoutes) installPluginNamed(ctx context.Context, r *http.Request, req sandbox.PluginInstall) (sandbox.Plugin, error) {
	var b installBody
	none := sandbox.Plugin{}
	dec := json.NewDecoder(io.LimitReader(&upload{r: r.Body}, maxInstallJSON))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&b); err != nil {
		return none, sandbox.Wrap(sandbox.Invalid, err, "the body is not {source}, {marketplace, plugin} or {thread_id, path}")
	}
	if err := checkLengths(b); err != nil {
		return none, err
	}
	ways := 0
	for _, given := range []bool{b.Source != "", b.Marketplace != "" && b.Plugin != "", b.ThreadID != "" && b.Path != ""} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		return none, sandbox.Errorf(sandbox.Invalid, "give source, or marketplace and plugin, or thread_id and path")
	}
	b.fill(&req)
	req.Marketplace, req.Plugin = b.Marketplace, b.Plugin
	if b.ThreadID == "" {
		return s.o.Plugins.Install(ctx, callerOf(ctx), nil, req)
	}
	if slices.Contains(strings.Split(b.Path, "/"), "..") {
		return none, sandbox.Errorf(sandbox.Forbidden, "the path leaves the thread's files")
	}
	req.Thread, req.From = b.ThreadID, b.Path
	return service.View(ctx, s.o.Files, callerOf(ctx), b.ThreadID, func(f *paths.FS) (sandbox.Plugin, error) {
		file, err := f.Open(b.Path)
		if err != nil {
			return none, err
		}
		defer file.Close() //nolint:errcheck // read-only
		return s.o.Plugins.Install(ctx, callerOf(ctx), file, req)
	})
}

// checkLengths holds a body that is not checked by its schema to the bounds of its fields' tags.
func checkLengths[T any](body T) error {
	v := reflect.ValueOf(body)
	for _, f := range reflect.VisibleFields(v.Type()) {
		most, err := strconv.Atoi(f.Tag.Get("maxLength"))
		if err == nil && utf8.RuneCountInString(v.FieldByIndex(f.Index).String()) > most {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			return sandbox.InvalidField(name, "at most %d characters", most)
		}
	}
	return nil
}

func (b *SourceBody) fill(req *sandbox.PluginInstall) {
	req.From, req.Kind, req.Ref, req.SHA, req.SHA256, req.Path = b.Source, b.Kind, b.Ref, b.SHA, b.SHA256, b.Folder
	req.Replace = req.Replace || b.Replace
}

func (s pluginRoutes) pluginCommands(ctx context.Context, in *struct {
	PluginIn
	ListIn
	Skills bool `query:"skills" doc:"Also the skills of the plugin that people may call"`
},
) (*body[page[sandbox.PluginCommand]], error) {
	if s.o.Plugins == nil {
		return nil, errNoPlugins
	}
	list, err := s.o.Plugins.Commands(ctx, callerOf(ctx), in.Name, in.Skills)
	if err != nil {
		return nil, err
	}
	return pageIn(in.ListIn, list, commandKey)
}

func (s pluginRoutes) invokeCommand(ctx context.Context, in *struct {
	ThreadIn
	Plugin  string `path:"plugin" maxLength:"64"`
	Command string `path:"command" maxLength:"128"`
	Body    commandArgs
},
) (*body[sandbox.PluginMessage], error) {
	if s.o.Plugins == nil {
		return nil, errNoPlugins
	}
	m, err := s.o.Plugins.Invoke(ctx, callerOf(ctx), in.Thread, in.Plugin, in.Command, in.Body.Args)
	if err != nil {
		return nil, err
	}
	return bodyOf(m), nil
}

func (s pluginRoutes) listMarketplaces(ctx context.Context, in *ListIn) (*body[page[sandbox.Marketplace]], error) {
	if s.o.Plugins == nil {
		return pageOf([]sandbox.Marketplace{}, ""), nil
	}
	list, err := s.o.Marketplaces.Marketplaces(ctx, callerOf(ctx))
	if err != nil {
		return nil, err
	}
	return pageIn(*in, list, marketplaceKey)
}

func (s pluginRoutes) addMarketplace(ctx context.Context, in *struct{ Body SourceBody }) (*body[sandbox.Marketplace], error) {
	if s.o.Plugins == nil {
		return nil, errNoPlugins
	}
	if in.Body.Source == "" {
		return nil, sandbox.InvalidField("source", "is missing")
	}
	var req sandbox.PluginInstall
	in.Body.fill(&req)
	m, err := s.o.Marketplaces.AddMarketplace(ctx, callerOf(ctx), req)
	if err != nil {
		return nil, err
	}
	return bodyOf(m), nil
}

func (s pluginRoutes) removeMarketplace(ctx context.Context, in *struct {
	Name string `path:"name" maxLength:"64"`
},
) (*struct{}, error) {
	if s.o.Plugins == nil {
		return nil, errNoPlugins
	}
	return nil, s.o.Marketplaces.RemoveMarketplace(ctx, callerOf(ctx), in.Name)
}
