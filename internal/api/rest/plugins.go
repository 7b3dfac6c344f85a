package rest

import (
	"context"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/service"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// pluginRoutes are the routes of plugins.
type pluginRoutes struct {
	plugins      service.Plugins      // nil: there are none
	marketplaces service.Marketplaces // nil when plugins is
	messages     service.Messages     // nil when plugins is
	files        service.Files
}

var errNoPlugins = sandbox.Errorf(sandbox.NotSupported, "this server has no plugins")

// PluginIn names a plugin.
type PluginIn struct {
	Name string `path:"name" maxLength:"64"`
}

type pluginChange struct {
	Enabled bool `json:"enabled"`
}

// pluginValues are what a plugin asks its user for, by the keys of its options.
type pluginValues struct {
	Values map[string]any `json:"values" minProperties:"1" maxProperties:"200" doc:"By the keys of the plugin's options: null removes one, *** keeps a sensitive one. ${secret:NAME} lends a secret of the caller"`
}

// SourceBody names a plugin or a marketplace. It is exported because huma sees only exported fields where
// it is embedded.
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

// installBody is the body of an install that is no upload: source, or marketplace and plugin, or thread_id
// and path.
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

// typedMessage is what a user typed: as long as messages to models may be.
type typedMessage struct {
	Text string `json:"text" maxLength:"1048576" doc:"The message, such as /sales:call-prep Acme"`
}

func (s pluginRoutes) add(api *route.API) {
	route.Register(api, route.On(http.MethodGet, "/api/plugins", "listPlugins", route.TagSkills, route.Agents, "The caller's plugins"), s.listPlugins)
	route.Register(api, route.On(http.MethodGet, "/api/plugins/{name}", "getPlugin", route.TagSkills, route.Agents, "One plugin"), s.getPlugin)
	route.Register(api, route.On(http.MethodPut, "/api/plugins/{name}", "changePlugin", route.TagSkills, route.Developers, "Switch a plugin on or off"), s.changePlugin)
	route.Register(api, route.On(http.MethodPut, "/api/plugins/{name}/values", "setPluginValues", route.TagSkills, route.Developers, "Set values that a plugin asks for, for the caller"), s.setPluginValues)
	route.Register(api, route.On(http.MethodDelete, "/api/plugins/{name}", "removePlugin", route.TagSkills, route.Developers, "Remove a plugin with its files and all that was said of it"), s.removePlugin)
	const install = "/api/plugins/install"
	route.Register(api, route.On(http.MethodPost, install, "installPlugin", route.TagSkills, route.Developers.Taking("application/json", "multipart/form-data"),
		"Install a plugin: from a source, a marketplace (marketplace, plugin), an archive of a thread (thread_id, path), or uploaded as the only file of a form"), s.installPlugin)
	// A form is streamed, so huma must not know of the body before the route is registered.
	schema := huma.SchemaFromType(api.OpenAPI().Components.Schemas, reflect.TypeFor[installBody]())
	api.OpenAPI().Paths[install].Post.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		"application/json":    {Schema: schema},
		"multipart/form-data": {Schema: &huma.Schema{Type: huma.TypeObject, Properties: map[string]*huma.Schema{"file": route.Binary()}}},
	}}
	route.Register(api, route.On(http.MethodGet, "/api/plugins/{name}/commands", "listPluginCommands", route.TagSkills, route.Agents, "The commands of a plugin"), s.pluginCommands)
	route.Register(api, route.On(http.MethodPost, "/api/threads/{thread}/commands/{plugin}/{command}", "invokeCommand", route.TagSkills, route.Agents.At(route.Holder),
		"The text of a command with its arguments put in, ready to be the user's message"), s.invokeCommand)
	route.Register(api, route.On(http.MethodPost, "/api/threads/{thread}/commands", "typedCommand", route.TagSkills, route.Agents.At(route.Holder),
		"The text of the command that a user typed, or the message as it came when it is no command"), s.typedCommand)
	route.Register(api, route.On(http.MethodGet, "/api/marketplaces", "listMarketplaces", route.TagSkills, route.Agents, "Marketplaces that were added"), s.listMarketplaces)
	route.Register(api, route.On(http.MethodPost, "/api/marketplaces", "addMarketplace", route.TagAdmin, route.Admins, "Add a marketplace, or read one anew"), s.addMarketplace)
	route.Register(api, route.On(http.MethodDelete, "/api/marketplaces/{name}", "removeMarketplace", route.TagAdmin, route.Admins, "Remove a marketplace; what was installed from it stays"), s.removeMarketplace)
}

func (s pluginRoutes) listPlugins(ctx context.Context, in *route.ListIn) (*route.Body[route.Page[sandbox.Plugin]], error) {
	if s.plugins == nil {
		return route.PageOf([]sandbox.Plugin{}, ""), nil
	}
	list, err := s.plugins.List(ctx, exchange.CallerOf(ctx))
	if err != nil {
		return nil, err
	}
	return route.PageIn(*in, list, pluginKey)
}

func (s pluginRoutes) getPlugin(ctx context.Context, in *PluginIn) (*route.Body[sandbox.Plugin], error) {
	if s.plugins == nil {
		return nil, errNoPlugins
	}
	p, err := s.plugins.Get(ctx, exchange.CallerOf(ctx), in.Name)
	if err != nil {
		return nil, err
	}
	return route.BodyOf(p), nil
}

func (s pluginRoutes) changePlugin(ctx context.Context, in *struct {
	PluginIn
	Body pluginChange
},
) (*route.Body[sandbox.Plugin], error) {
	if s.plugins == nil {
		return nil, errNoPlugins
	}
	p, err := s.plugins.Switch(ctx, exchange.CallerOf(ctx), in.Name, in.Body.Enabled)
	if err != nil {
		return nil, err
	}
	return route.BodyOf(p), nil
}

func (s pluginRoutes) setPluginValues(ctx context.Context, in *struct {
	PluginIn
	Body pluginValues
},
) (*route.Body[sandbox.Plugin], error) {
	if s.plugins == nil {
		return nil, errNoPlugins
	}
	p, err := s.plugins.SetValues(ctx, exchange.CallerOf(ctx), in.Name, in.Body.Values)
	if err != nil {
		return nil, err
	}
	return route.BodyOf(p), nil
}

func (s pluginRoutes) removePlugin(ctx context.Context, in *PluginIn) (*struct{}, error) {
	if s.plugins == nil {
		return nil, errNoPlugins
	}
	return nil, s.plugins.Remove(ctx, exchange.CallerOf(ctx), in.Name)
}

func (s pluginRoutes) installPlugin(ctx context.Context, in *pluginInstallIn) (*route.Body[pluginInstalled], error) {
	if s.plugins == nil {
		return nil, errNoPlugins
	}
	req := sandbox.PluginInstall{Digest: in.Digest, Shared: in.Shared, Strict: in.Strict, Disabled: !in.Enabled, Replace: in.Replace}
	r := exchange.Of(ctx).Request
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
	return route.BodyOf(pluginInstalled{Success: true, PluginName: p.Name, Message: "plugin " + p.Name + " is installed", Plugin: p, Findings: p.Findings}), nil
}

// installPluginUpload installs the first file of a form.
func (s pluginRoutes) installPluginUpload(ctx context.Context, r *http.Request, req sandbox.PluginInstall) (sandbox.Plugin, error) {
	name, content, err := exchange.FirstFile(r)
	if err != nil {
		return sandbox.Plugin{}, err
	}
	req.From = path.Base("/" + cutName(name))
	return s.plugins.Install(ctx, exchange.CallerOf(ctx), content, req)
}

// installPluginNamed installs what the JSON names.
func (s pluginRoutes) installPluginNamed(ctx context.Context, r *http.Request, req sandbox.PluginInstall) (sandbox.Plugin, error) {
	var b installBody
	none := sandbox.Plugin{}
	dec := json.NewDecoder(io.LimitReader(exchange.Body(r.Body), maxInstallJSON))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&b); err != nil {
		return none, sandbox.Wrap(sandbox.Invalid, err, "the body is not {source}, {marketplace, plugin} or {thread_id, path}")
	}
	if err := checkBounds(b); err != nil {
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
		return s.plugins.Install(ctx, exchange.CallerOf(ctx), nil, req)
	}
	if slices.Contains(strings.Split(b.Path, "/"), "..") {
		return none, sandbox.Errorf(sandbox.Forbidden, "the path leaves the thread's files")
	}
	req.Thread, req.From = b.ThreadID, b.Path
	return service.View(ctx, s.files, exchange.CallerOf(ctx), b.ThreadID, func(f *paths.FS) (sandbox.Plugin, error) {
		file, err := f.Open(b.Path)
		if err != nil {
			return none, err
		}
		defer file.Close() //nolint:errcheck // read-only
		return s.plugins.Install(ctx, exchange.CallerOf(ctx), file, req)
	})
}

// checkBounds holds a body that is not checked by its schema to the bounds of its fields' tags.
func checkBounds[T any](body T) error {
	v := reflect.ValueOf(body)
	for _, f := range reflect.VisibleFields(v.Type()) {
		value, name := v.FieldByIndex(f.Index), strings.Split(f.Tag.Get("json"), ",")[0]
		if value.Kind() != reflect.String || value.Len() == 0 {
			continue
		}
		text, pattern, enum := value.String(), f.Tag.Get("pattern"), f.Tag.Get("enum")
		if most, err := strconv.Atoi(f.Tag.Get("maxLength")); err == nil && utf8.RuneCountInString(text) > most {
			return sandbox.InvalidField(name, "at most %d characters", most)
		}
		if pattern != "" && !regexp.MustCompile(pattern).MatchString(text) {
			return sandbox.InvalidField(name, "has to match %s", pattern)
		}
		if enum != "" && !slices.Contains(strings.Split(enum, ","), text) {
			return sandbox.InvalidField(name, "has to be one of %s", enum)
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
	route.ListIn
	Skills bool `query:"skills" doc:"Also the skills of the plugin that people may call"`
},
) (*route.Body[route.Page[sandbox.PluginCommand]], error) {
	if s.plugins == nil {
		return nil, errNoPlugins
	}
	list, err := s.plugins.Commands(ctx, exchange.CallerOf(ctx), in.Name, in.Skills)
	if err != nil {
		return nil, err
	}
	return route.PageIn(in.ListIn, list, commandKey)
}

func (s pluginRoutes) invokeCommand(ctx context.Context, in *struct {
	route.ThreadIn
	Plugin  string `path:"plugin" maxLength:"64"`
	Command string `path:"command" maxLength:"128"`
	Body    commandArgs
},
) (*route.Body[sandbox.PluginMessage], error) {
	if s.plugins == nil {
		return nil, errNoPlugins
	}
	m, err := s.plugins.Invoke(ctx, exchange.CallerOf(ctx), in.Thread, in.Plugin, in.Command, in.Body.Args)
	if err != nil {
		return nil, err
	}
	return route.BodyOf(m), nil
}

func (s pluginRoutes) typedCommand(ctx context.Context, in *struct {
	route.ThreadIn
	Body typedMessage
},
) (*route.Body[sandbox.TypedCommand], error) {
	if s.messages == nil {
		return nil, errNoPlugins
	}
	m, err := s.messages.ReadMessage(ctx, exchange.CallerOf(ctx), in.Thread, in.Body.Text)
	if err != nil {
		return nil, err
	}
	return route.BodyOf(m), nil
}

func (s pluginRoutes) listMarketplaces(ctx context.Context, in *route.ListIn) (*route.Body[route.Page[sandbox.Marketplace]], error) {
	if s.plugins == nil {
		return route.PageOf([]sandbox.Marketplace{}, ""), nil
	}
	list, err := s.marketplaces.Marketplaces(ctx, exchange.CallerOf(ctx))
	if err != nil {
		return nil, err
	}
	return route.PageIn(*in, list, marketplaceKey)
}

func (s pluginRoutes) addMarketplace(ctx context.Context, in *struct{ Body SourceBody }) (*route.Body[sandbox.Marketplace], error) {
	if s.plugins == nil {
		return nil, errNoPlugins
	}
	if in.Body.Source == "" {
		return nil, sandbox.InvalidField("source", "is missing")
	}
	var req sandbox.PluginInstall
	in.Body.fill(&req)
	m, err := s.marketplaces.AddMarketplace(ctx, exchange.CallerOf(ctx), req)
	if err != nil {
		return nil, err
	}
	return route.BodyOf(m), nil
}

func (s pluginRoutes) removeMarketplace(ctx context.Context, in *struct {
	Name string `path:"name" maxLength:"64"`
},
) (*struct{}, error) {
	if s.plugins == nil {
		return nil, errNoPlugins
	}
	return nil, s.marketplaces.RemoveMarketplace(ctx, exchange.CallerOf(ctx), in.Name)
}

func pluginKey(p sandbox.Plugin) string { return p.Name }

func commandKey(c sandbox.PluginCommand) string { return c.Kind + ":" + c.Name }

func marketplaceKey(m sandbox.Marketplace) string { return m.Name }
