package rest

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/skerry-sandbox/skerry/internal/api/rest/access"
	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/packs"
)

// toolPacks are the tool packs of this server.
type toolPacks interface {
	// Handler answers the streams of packs.
	Handler() http.Handler
	List(c sandbox.Caller) []sandbox.PackInfo
	Get(c sandbox.Caller, id string) (sandbox.PackInfo, error)
	// ListKeys lists the SSH keys that may provide packs.
	ListKeys(ctx context.Context) ([]sandbox.PackKey, error)
	AddKey(ctx context.Context, c sandbox.Caller, k sandbox.PackKey) (sandbox.PackKey, error)
	DeleteKey(ctx context.Context, c sandbox.Caller, id string) error
}

// packRoutes are the routes of tool packs.
type packRoutes struct {
	packs  toolPacks // nil: the server takes none
	table  *route.Table
	access *access.Authenticator
}

func (s packRoutes) add(api *route.API, routes gin.IRoutes) {
	route.Register(api, route.On(http.MethodGet, "/api/packs", "listPacks", route.TagAdmin, route.Admins, "Tool packs that are connected, or went a short while ago: of the caller's tenant, and of all tenants"),
		func(ctx context.Context, in *route.ListIn) (*route.Body[route.Page[sandbox.PackInfo]], error) {
			if s.packs == nil {
				return nil, errNoPacks
			}
			return route.PageIn(*in, s.packs.List(exchange.CallerOf(ctx)), func(p sandbox.PackInfo) string { return p.ID + " " + p.Tenant })
		})
	route.Register(api, route.On(http.MethodGet, "/api/packs/{id}", "getPack", route.TagAdmin, route.Admins, "A tool pack with its tools"),
		func(ctx context.Context, in *struct {
			ID string `path:"id" maxLength:"63"`
		},
		) (*route.Body[sandbox.PackInfo], error) {
			if s.packs == nil {
				return nil, errNoPacks
			}
			p, err := s.packs.Get(exchange.CallerOf(ctx), in.ID)
			if err != nil {
				return nil, err
			}
			return route.BodyOf(p), nil
		})
	s.addKeys(api)
	if s.packs == nil {
		return
	}
	h := s.packs.Handler()
	s.table.Declare(http.MethodPost, packs.Path+":method", route.Anyone)
	routes.POST(packs.Path+":method", func(c *gin.Context) { s.connect(c, h) })
}

// packKeyBody is the body of POST /api/packs/keys.
type packKeyBody struct {
	Key          string     `json:"key" minLength:"1" maxLength:"16384" doc:"As in authorized_keys: type, base64 and a name. Or x509-spki-sha256 and the SHA-256 of the public key of a TLS client's certificate"`
	Name         string     `json:"name,omitempty" maxLength:"128"`
	Authority    bool       `json:"cert_authority,omitempty" doc:"Certificates that it signed count, and not the key itself"`
	Tenant       string     `json:"tenant,omitempty" doc:"Whose users get the packs; all when absent"`
	Packs        []string   `json:"packs,omitempty" maxItems:"100" doc:"The only packs: names, or the beginning of names with a * behind it; all when absent"`
	Capabilities []string   `json:"capabilities,omitempty" maxItems:"256" doc:"The only capabilities that its tools may require; any when absent"`
	ExpiresAt    *time.Time `json:"expires_at,omitempty"`
}

// addKeys adds the routes of the keys of packs.
func (s packRoutes) addKeys(api *route.API) {
	route.Register(api, route.On(http.MethodGet, "/api/packs/keys", "listPackKeys", route.TagAdmin, route.Operators, "SSH keys that may provide tool packs"),
		func(ctx context.Context, in *route.ListIn) (*route.Body[route.Page[sandbox.PackKey]], error) {
			if s.packs == nil {
				return nil, errNoPacks
			}
			list, err := s.packs.ListKeys(ctx)
			if err != nil {
				return nil, err
			}
			return route.PageIn(*in, list, func(k sandbox.PackKey) string { return k.ID })
		})
	op := route.On(http.MethodPost, "/api/packs/keys", "addPackKey", route.TagAdmin, route.Operators, "Let an SSH key provide tool packs")
	op.DefaultStatus = http.StatusCreated
	route.Register(api, op, func(ctx context.Context, in *struct{ Body packKeyBody }) (*route.Body[sandbox.PackKey], error) {
		if s.packs == nil {
			return nil, errNoPacks
		}
		b := in.Body
		k, err := s.packs.AddKey(ctx, exchange.CallerOf(ctx), sandbox.PackKey{
			Key: b.Key, Name: b.Name, Authority: b.Authority, Tenant: b.Tenant, Packs: b.Packs, Capabilities: b.Capabilities, ExpiresAt: b.ExpiresAt,
		})
		if err != nil {
			return nil, err
		}
		return route.BodyOf(k), nil
	})
	route.Register(api, route.On(http.MethodDelete, "/api/packs/keys/{id}", "deletePackKey", route.TagAdmin, route.Operators, "Take a key of packs away; what it provides ends within 5 s"),
		func(ctx context.Context, in *struct {
			ID string `path:"id" maxLength:"128" doc:"Its fingerprint, escaped: it may have a /"`
		},
		) (*struct{}, error) {
			if s.packs == nil {
				return nil, errNoPacks
			}
			return nil, s.packs.DeleteKey(ctx, exchange.CallerOf(ctx), in.ID)
		})
}

var errNoPacks = sandbox.Errorf(sandbox.NotSupported, "this server takes no tool packs: packs.enabled switches them on")

// recheckPacks is how often the bearer key of a pack is checked again: what it provides ends within 5 s.
const recheckPacks = 2 * time.Second

// connect serves the stream of a pack. A pack without a bearer key proves who it is on the stream.
func (s packRoutes) connect(c *gin.Context, h http.Handler) {
	x := exchange.Of(c.Request.Context())
	p := packs.Peer{Source: exchange.Source(c.Request), Host: c.Request.Host, Unblock: packs.Unblock(x.Control)}
	if tls := c.Request.TLS; tls != nil && len(tls.VerifiedChains) > 0 {
		p.Certificate = tls.PeerCertificates[0]
	}
	ctx, cancel := context.WithCancelCause(c.Request.Context())
	defer cancel(nil)
	header := c.Request.Header
	if scheme, key, _ := strings.Cut(header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") && strings.HasPrefix(key, packs.ChannelKeys) {
		p.ChannelKey = key // of a skill of a thread: it is good here and nowhere else
	} else if s.access.Anonymous != nil || header.Get("Authorization") != "" || header.Get("X-API-Key") != "" {
		s.access.Authenticate(c)
		if c.IsAborted() {
			return
		}
		caller := exchange.CallerOf(c.Request.Context())
		p.Caller = &caller
		often := *s.access
		often.Recheck = recheckPacks
		defer often.Watch(c.Request, caller, func() {
			cancel(sandbox.Errorf(sandbox.Forbidden, "its key was revoked, or has other rights now"))
		})()
	}
	h.ServeHTTP(c.Writer, c.Request.WithContext(packs.WithPeer(ctx, p)))
}
