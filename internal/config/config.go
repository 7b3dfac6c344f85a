// Package config is the configuration of `skerry serve`: one struct, read once from one YAML file
// and the environment, and checked as a whole, so that every problem is named at once.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// Config is all that can be set. Each field is a key of the YAML file and, with SKERRY_ before its
// name in capitals, an environment variable, which wins. Lists are comma-separated there. A section's
// name comes before its fields': SKERRY_CODE_EXECUTION_MODE.
type Config struct {
	// Listen is the address of the API. Any other than loopback needs a key (see Auth).
	Listen string `yaml:"listen"`
	// TLS serves the API by https.
	TLS TLS `yaml:"tls"`
	// Data is the folder of everything that is kept.
	Data    string `yaml:"data"`
	Drivers `yaml:",inline"`
	// Redis is redis://…; empty means state in this process, with a journal under Data.
	Redis string `yaml:"redis"`
	// PeerListen is the ip:port where the other servers of the data folder reach this one by TLS; empty: all of them
	// are on this machine, and reach each other by sockets.
	PeerListen string `yaml:"peer_listen"`
	// Authority signs what servers show each other, and sandboxes on other machines.
	Authority Authority `yaml:"authority"`
	// Auth is "keys" (every call needs a key or a token), "none" (loopback only), or "auto": keys as soon as one
	// key exists or OIDC is configured, which a listener that is not loopback cannot do without.
	Auth string `yaml:"auth"`
	// OIDC are identity providers whose tokens are credentials, beside keys.
	OIDC []OIDCIssuer `yaml:"oidc"`
	// OperatorTenant is the tenant whose administrators also administer what all tenants share: MCP servers of
	// everybody, skills for everybody, metrics.
	OperatorTenant string `yaml:"operator_tenant"`
	// AllowedHosts are Host names besides loopback ones and Listen's.
	AllowedHosts []string `yaml:"allowed_hosts"`
	// AllowedOrigins are Origins of pages that may call the API.
	AllowedOrigins []string `yaml:"allowed_origins"`
	Adapters       `yaml:",inline"`
	// Templates is a folder of sandbox templates; empty means the built-in ones.
	Templates string `yaml:"templates"`
	// DefaultTemplate is what a thread gets that asks for none.
	DefaultTemplate string `yaml:"default_template"`
	// Images is where the drivers oci and containerd find images: <images>/<name>/rootfs, and archives <images>/<name>/image.tar.
	Images string `yaml:"images"`
	// Skills is the folder that holds public/; empty: the skills that are compiled in.
	Skills string `yaml:"skills"`
	// SkillSources is a skills.json: more skills for all users, beside those of Skills.
	SkillSources string `yaml:"skill_sources"`
	// StrictFrontmatter refuses to install skills that do not keep to the Agent Skills standard; StrictInstall
	// those in which the static scan finds an error.
	StrictFrontmatter bool `yaml:"strict_frontmatter"`
	StrictInstall     bool `yaml:"strict_install"`
	// TrustInstalls lets scripts of skills that users install run. Without it, and for a skill in which the scan
	// has an error, they want an approval.
	TrustInstalls bool `yaml:"trust_installs"`
	// Policy is the file of rules that say who may call what; empty means <data>/policy/policy.yaml, and the
	// built-in rules as long as that is not there. Rules of tenants are in <data>/policy/tenants.
	Policy string `yaml:"policy"`
	// Plugins says what plugins may do.
	Plugins Plugins `yaml:"plugins"`
	// Secrets says where secrets come from and how they are kept.
	Secrets Secrets `yaml:"secrets"`
	Tools   `yaml:",inline"`
	// S3 is where skills are installed from by s3://bucket/key.
	S3 S3 `yaml:"s3"`
	// Extensions is extensions_config.json (mcpServers); empty means <data>/extensions_config.json.
	Extensions string `yaml:"extensions"`
	// Sandboxd is the static skerry-sandboxd; empty means beside this program.
	Sandboxd string `yaml:"sandboxd"`
	// DiskQuota says what bounds the files of threads: auto, kernel (quotas of the data folder's file system),
	// image (a file system of a fixed size in <data>/disk.img), or off.
	DiskQuota string `yaml:"disk_quota"`
	// DiskImageMiB is the size of that image; 0: as DiskQuota says. It can grow.
	DiskImageMiB int `yaml:"disk_image_mib"`
	// UserDiskMiB bounds the files of all threads of one user together; 0: only each thread's limit counts.
	UserDiskMiB int `yaml:"user_disk_mib"`
	Workspaces  `yaml:",inline"`
	// MaxSandboxes bounds how many sandboxes run at once on this server.
	MaxSandboxes int `yaml:"max_sandboxes"`
	Lifecycle    `yaml:",inline"`
	// StartTimeout bounds the start of one sandbox.
	StartTimeout time.Duration `yaml:"start_timeout"`
	// Approvals says how people are asked about calls.
	Approvals Approvals `yaml:"approvals"`
	// LogLevel is debug, info, warn or error.
	LogLevel string `yaml:"log_level"`
	// Audit says how what happens is recorded.
	Audit Audit `yaml:"audit"`
	// CodeExecution says how agents get their tools and run code.
	CodeExecution CodeExecution `yaml:"code_execution"`
	// Limits bound what tenants, users and keys take.
	Limits Limits `yaml:"limits"`
	// Tracing says where traces go.
	Tracing Tracing `yaml:"tracing"`
}

// Tracing says where OpenTelemetry traces go.
type Tracing struct {
	// Endpoint is a collector that takes OTLP over HTTP: http(s)://host:port, without a path /v1/traces. Empty: as
	// OTEL_EXPORTER_OTLP_ENDPOINT says; without that, nothing is traced.
	Endpoint string `yaml:"endpoint"`
	// SamplePercent is how many of the traces that begin here are recorded. For a trace that a caller began, the caller decides.
	SamplePercent int `yaml:"sample_percent"`
}

func (t *Tracing) check(bad func(key, format string, args ...any)) {
	if t.Endpoint != "" && !strings.HasPrefix(t.Endpoint, "http://") && !strings.HasPrefix(t.Endpoint, "https://") {
		bad("tracing.endpoint", "%q is not http(s)://host:port", t.Endpoint)
	}
	if t.SamplePercent < 0 || t.SamplePercent > 100 {
		bad("tracing.sample_percent", "%d is not 0 to 100", t.SamplePercent)
	}
}

// TLS names files in PEM. They are read again when they change.
type TLS struct {
	Cert string `yaml:"cert"` // the certificate, then those between it and its authority; empty: http
	Key  string `yaml:"key"`
	// ClientCA are the authorities of clients' certificates; empty: clients need none.
	ClientCA string `yaml:"client_ca"`
}

// Authority names files in PEM: the certificate of an authority of this installation alone, and its key (ECDSA). Without them
// one is made in <data>/authority.
type Authority struct {
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

// Drivers says what starts sandboxes.
type Drivers struct {
	// Driver is auto, docker, oci, containerd, kubernetes or remote.
	Driver string `yaml:"driver"`
	// CgroupParent is the cgroup below which those of sandboxes are; empty: beside the host's services.
	CgroupParent string `yaml:"cgroup_parent"`
	// Docker, Containerd, Kubernetes and Remote are for the drivers of these names.
	Docker     Docker     `yaml:"docker"`
	Containerd Containerd `yaml:"containerd"`
	Kubernetes Kubernetes `yaml:"kubernetes"`
	Remote     Remote     `yaml:"remote"`
}

// Docker says where the engine is.
type Docker struct {
	Address string `yaml:"address"` // absolute path of its unix socket, on this host
}

// Containerd says where containerd is and what of it is Skerry's.
type Containerd struct {
	// Address is its unix socket.
	Address string `yaml:"address"`
	// Namespace is that of sandboxes and their images.
	Namespace string `yaml:"namespace"`
	// Pull fetches images that are not there from their registries.
	Pull bool `yaml:"pull"`
}

// Default is the configuration when nothing is configured.
func Default() Config {
	return Config{
		Listen: "127.0.0.1:8080", Data: "/var/lib/skerry", Auth: "auto", OperatorTenant: "default",
		Drivers: Drivers{
			Driver:     "auto",
			Docker:     Docker{Address: "/var/run/docker.sock"},
			Containerd: Containerd{Address: "/run/containerd/containerd.sock", Namespace: "skerry"},
			Kubernetes: defaultKubernetes(),
			Remote:     Remote{Template: "base"},
		},
		Adapters:        Adapters{Console: Console{Enabled: true}},
		DefaultTemplate: "base", Images: "/var/cache/skerry/images",
		Approvals:  Approvals{Timeout: 5 * time.Minute, WaitPerExec: 30 * time.Minute},
		Workspaces: Workspaces{Mode: "sync", Delay: 5 * time.Second, UserEnvMiB: 64},
		S3:         S3{PathStyle: true}, TrustInstalls: true, MaxSandboxes: 200, Lifecycle: defaultLifecycle(), Audit: defaultAudit(), Plugins: defaultPlugins(), StartTimeout: 60 * time.Second,
		Tools: defaultTools(), LogLevel: "info", DiskQuota: "auto",
		Tracing: Tracing{SamplePercent: 100},
		CodeExecution: CodeExecution{RegenerateOnStartup: true, CodeRules: CodeRules{
			Enabled: true, Mode: "auto", AutoThresholdTokens: defaultAutoTokens, Language: "typescript", SandboxTimeout: 30, MaxOutputChars: 10_000,
		}},
	}
}

const maxFileBytes = 1 << 20

// Load reads file ("" = none) and the environment over the defaults. It does not check the values:
// flags may still change them.
func Load(file string, lookup func(string) (string, bool)) (Config, error) {
	c := Default()
	if file != "" {
		if err := c.readFile(file); err != nil {
			return c, err
		}
	}
	return c, c.readEnv(lookup)
}

func (c *Config) readFile(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if len(raw) > maxFileBytes {
		return fmt.Errorf("configuration %s: larger than %d bytes", file, maxFileBytes)
	}
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	if err := dec.Decode(c); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("configuration %s: %w", file, err)
	}
	return nil
}

// readEnv sets each field from its variable. All bad values are reported together.
func (c *Config) readEnv(lookup func(string) (string, bool)) error {
	var errs []error
	eachField(reflect.ValueOf(c).Elem(), "", func(key string, f reflect.Value) {
		name := EnvName(key)
		text, ok := lookup(name)
		if !ok {
			return
		}
		if err := set(f, text); err != nil {
			errs = append(errs, fmt.Errorf("%s=%q: %w", name, text, err))
		}
	})
	return errors.Join(errs...)
}

// eachField visits the fields of c and of its sections, each with its key ("section.field").
func eachField(v reflect.Value, prefix string, visit func(key string, f reflect.Value)) {
	for i := range v.NumField() {
		name, option, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
		switch f := v.Field(i); {
		case option == "inline":
			eachField(f, prefix, visit)
		case f.Kind() == reflect.Struct:
			eachField(f, prefix+name+".", visit)
		default:
			visit(prefix+name, f)
		}
	}
}

// Keys returns the value of every field by its key ("listen", "section.field").
func (c Config) Keys() map[string]any {
	all := map[string]any{}
	eachField(reflect.ValueOf(&c).Elem(), "", func(key string, f reflect.Value) { all[key] = f.Interface() })
	return all
}

// EnvName is the environment variable of a key of the file, such as "listen" or "section.field".
func EnvName(key string) string {
	return "SKERRY_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

func set(f reflect.Value, text string) error {
	switch f.Interface().(type) {
	case string:
		f.SetString(text)
	case []string:
		var list []string
		for part := range strings.SplitSeq(text, ",") {
			if part = strings.TrimSpace(part); part != "" {
				list = append(list, part)
			}
		}
		f.Set(reflect.ValueOf(list))
	case int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return errors.New("want a whole number")
		}
		f.SetInt(int64(n))
	case *int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return errors.New("want a whole number")
		}
		f.Set(reflect.ValueOf(&n))
	case time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return errors.New(`want a duration such as "30s"`)
		}
		f.SetInt(int64(d))
	case bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return errors.New("want true or false")
		}
		f.SetBool(b)
	case map[string]TenantRules, map[string]OwnLimits:
		dec := yaml.NewDecoder(strings.NewReader(text))
		dec.KnownFields(true)
		if err := dec.Decode(f.Addr().Interface()); err != nil {
			return errors.New("want YAML such as {name: {mode: always}}, or {name: {execs: 100}}")
		}
	case map[string]string:
		if err := yaml.Unmarshal([]byte(text), f.Addr().Interface()); err != nil {
			return errors.New("want YAML such as {name: other}")
		}
	case []OIDCIssuer:
		dec := yaml.NewDecoder(strings.NewReader(text))
		dec.KnownFields(true)
		if err := dec.Decode(f.Addr().Interface()); err != nil {
			return errors.New("want YAML such as [{issuer: https://…, audiences: [skerry], tenant_claim: org}]")
		}
	default:
		return fmt.Errorf("no rule for a %s", f.Type())
	}
	return nil
}

// Check reports every value that cannot be right, and makes the paths absolute.
func (c *Config) Check() error {
	var errs []error
	bad := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
	}
	if _, port, err := net.SplitHostPort(c.Listen); err != nil || !isPort(port) {
		bad("listen", "%q is not host:port, with a number as the port, such as 127.0.0.1:8080; a unix socket is not served", c.Listen)
	}
	if (c.TLS.Cert == "") != (c.TLS.Key == "") {
		bad("tls", "cert and key belong together: give both, or none")
	}
	if c.PeerListen != "" {
		at, err := netip.ParseAddrPort(c.PeerListen)
		if err != nil || at.Addr().IsUnspecified() {
			bad("peer_listen", "%q is not ip:port, with an address of this machine that the other servers reach, such as 10.0.0.5:8443", c.PeerListen)
		}
		if c.Redis == "" {
			bad("peer_listen", "several servers need one Redis: set redis, too")
		}
	}
	if (c.Authority.Cert == "") != (c.Authority.Key == "") {
		bad("authority", "cert and key belong together: give both, or none")
	}
	if c.TLS.ClientCA != "" && c.TLS.Cert == "" {
		bad("tls.client_ca", "clients show certificates by TLS only: give cert and key, too")
	}
	oneOf := func(key, v string, allowed ...string) {
		if slices.Contains(allowed, v) {
			return
		}
		sort.Strings(allowed)
		bad(key, "%q is not one of %s", v, strings.Join(allowed, ", "))
	}
	oneOf("driver", c.Driver, "auto", "docker", "oci", "containerd", "kubernetes", "remote")
	if (c.Driver == "docker" || c.Driver == "auto") && !filepath.IsAbs(c.Docker.Address) {
		bad("docker.address", "%q is not the absolute path of a unix socket", c.Docker.Address)
	}
	if c.Driver == "containerd" && !filepath.IsAbs(c.Containerd.Address) {
		bad("containerd.address", "%q is not the absolute path of a unix socket", c.Containerd.Address)
	}
	if c.Driver == "kubernetes" {
		c.Kubernetes.check(bad)
		if c.Kubernetes.Workspaces == "volume" && c.Workspaces.Store != "" {
			bad("workspaces", "keeps what is in the data folder, and with kubernetes.workspaces volume the files of threads are not there: back up the volumes")
		}
	}
	if c.Driver == "remote" {
		c.Remote.check(bad)
	}
	if c.DiskQuota == "auto" && (c.Driver == "kubernetes" || c.Driver == "remote") { // a workspace is a copy, which is bounded when it is made
		c.DiskQuota = "off"
	}
	oneOf("disk_quota", c.DiskQuota, "auto", "kernel", "image", "off")
	for key, n := range map[string]int{"disk_image_mib": c.DiskImageMiB, "user_disk_mib": c.UserDiskMiB} {
		if n < 0 || n > 1<<30 {
			bad(key, "%d is not 0 to %d", n, 1<<30)
		}
	}
	if c.DiskImageMiB != 0 && c.DiskImageMiB < 256 || c.DiskQuota == "image" && c.DiskImageMiB == 0 {
		bad("disk_image_mib", "%d is less than 256, the smallest image", c.DiskImageMiB)
	}
	oneOf("auth", c.Auth, "auto", "keys", "none")
	oneOf("tool_drift", c.ToolDrift, "record", "quarantine")
	c.Packs.check(bad)
	oneOf("log_level", c.LogLevel, "debug", "info", "warn", "error")
	if c.Auth == "none" && !c.Loopback() {
		bad("auth", "none is for a loopback listener only, and %s is not one", c.Listen)
	}
	if c.Auth == "none" && len(c.OIDC) > 0 {
		bad("oidc", "auth is none, so that no token would be looked at")
	}
	if c.OperatorTenant == "" {
		bad("operator_tenant", "is empty: name the tenant whose administrators administer what all share")
	}
	if c.MaxSandboxes < 1 {
		bad("max_sandboxes", "%d is less than 1", c.MaxSandboxes)
	}
	if c.StartTimeout < time.Second {
		bad("start_timeout", "%s is less than 1s", c.StartTimeout)
	}
	for key, n := range map[string]int{"tool_calls_per_exec": c.ToolCalls, "tool_mib_per_exec": c.ToolMiB} {
		if n < 1 || n > 1_000_000 {
			bad(key, "%d is not 1 to 1000000", n)
		}
	}
	if c.ToolTimeout < time.Second || c.ToolTimeout > time.Hour {
		bad("tool_timeout", "%s is not 1s to 1h", c.ToolTimeout)
	}
	if c.Data == "" {
		bad("data", "is empty")
	}
	c.Lifecycle.check(bad)
	c.Workspaces.check(bad)
	c.CodeExecution.check(bad)
	c.Limits.check(bad)
	c.Tracing.check(bad)
	c.DeerFlow.check(bad)
	c.S3.check(bad)
	c.Approvals.check(bad)
	c.Plugins.check(bad)
	c.Audit.check(bad)
	if c.Redis != "" && !strings.HasPrefix(c.Redis, "redis://") && !strings.HasPrefix(c.Redis, "rediss://") {
		bad("redis", "must begin with redis:// or rediss://")
	}
	for _, p := range []*string{&c.Data, &c.Templates, &c.Images, &c.Skills, &c.SkillSources, &c.Extensions, &c.Sandboxd, &c.TLS.Cert, &c.TLS.Key, &c.TLS.ClientCA, &c.Authority.Cert, &c.Authority.Key, &c.Kubernetes.Kubeconfig, &c.Remote.APIKeyFile, &c.Remote.Bridge} {
		if *p == "" {
			continue
		}
		abs, err := filepath.Abs(*p)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		*p = abs
	}
	c.Secrets.check(c.Data, bad)
	if c.Extensions == "" {
		c.Extensions = filepath.Join(c.Data, "extensions_config.json")
	}
	return errors.Join(errs...)
}

// Loopback reports whether only this machine can reach the listener.
func (c *Config) Loopback() bool {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return false
	}
	return loopbackHost(host)
}

func isPort(text string) bool {
	_, err := strconv.ParseUint(text, 10, 16)
	return err == nil
}
