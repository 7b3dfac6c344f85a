package config

import (
	"fmt"
	"strings"
	"time"
)

// Setting describes one key of the configuration.
type Setting struct {
	Key  string // "listen", "section.field"
	Text string // what it does, as a sentence in Markdown; links are relative to docs/
	// Unset says what applies without a value, when that is not the default of the field itself.
	Unset string
}

// Section is a part of the page and the sample file.
type Section struct {
	Title    string
	Text     string
	Settings []Setting
}

// Sections describe every key, in the order in which a reader needs them. A test compares them with Config.
func Sections() []Section { return sections }

// Type names the type of a setting's value.
func (s Setting) Type() string {
	switch Default().Keys()[s.Key].(type) {
	case string:
		return "text"
	case int:
		return "number"
	case bool:
		return "true or false"
	case time.Duration:
		return "duration"
	case []string, []OIDCIssuer:
		return "list"
	}
	return "map"
}

// Default returns the value that applies without a setting, as YAML; "" for an empty one.
func (s Setting) Default() string {
	switch v := Default().Keys()[s.Key].(type) {
	case string:
		return v
	case time.Duration:
		if v == 0 {
			return ""
		}
		return short(v)
	case []string:
		if len(v) > 0 {
			return "[" + strings.Join(v, ", ") + "]"
		}
	case int, bool:
		return fmt.Sprint(v)
	}
	return ""
}

// short writes 1h, not 1h0m0s.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

var sections = []Section{
	{"Serve the API", "Who reaches the server, and with which credentials.", []Setting{
		{"listen", "Address of the API. Any other than loopback needs a key or OIDC.", ""},
		{"auth", "`keys`: every call needs a credential. `none`: no call does, on loopback only. `auto`: `keys` as soon as a key exists or OIDC is configured.", ""},
		{"oidc", "Identity providers whose tokens are credentials, beside keys: see [identity](identity.md).", ""},
		{"operator_tenant", "Tenant whose administrators also administer what all tenants share.", ""},
		{"allowed_hosts", "Values of the header `Host` that the server accepts, besides loopback names and `listen`.", ""},
		{"allowed_origins", "Origins of web pages that may call the API.", ""},
		{"tls.cert", "File with the certificate in PEM. With it, the API is served by https. The server reads the files again when they change.", ""},
		{"tls.key", "File with the key of the certificate.", ""},
		{"tls.client_ca", "File with the authorities of clients' certificates. Without it, clients need no certificate.", ""},
		{"e2b", "Serves the API of E2B at the same address: see [E2B](e2b.md).", ""},
		{"deerflow.enabled", "Serves DeerFlow's sandbox provisioner at `/deerflow`: see [DeerFlow](deerflow.md).", ""},
		{"deerflow.url", "`http(s)://host[:port]` where DeerFlow reaches this server.", "the address that DeerFlow called"},
		{"log_level", "`debug`, `info`, `warn` or `error`.", ""},
	}},
	{"Keep state", "Where the server keeps what must survive it, and how several servers share it.", []Setting{
		{"data", "Folder of everything that the server keeps.", ""},
		{"redis", "`redis://…`. Without it, state is in the process, with a journal in `data`. Several servers need one.", ""},
		{"peer_listen", "`ip:port` where servers of the same data folder on other machines reach this one, by TLS. Without it, all servers run on this machine.", ""},
		{"authority.cert", "File with the certificate of an authority that serves this installation alone. It signs the certificates of servers, and of sandboxes on other machines.", "the server makes one in `<data>/authority`"},
		{"authority.key", "File with its key (ECDSA).", ""},
		{"extensions", "File with the MCP servers: see [MCP servers](mcp-servers.md).", "`<data>/extensions_config.json`"},
		{"sandboxd", "The static program `skerry-sandboxd`.", "beside `skerry`"},
	}},
	{"Choose what runs sandboxes", "One driver serves all sandboxes of a server: see [drivers](drivers.md).", []Setting{
		{"driver", "`docker`, `oci`, `containerd` or `kubernetes`. `auto` takes the first of `docker` and `oci` that works.", ""},
		{"docker.address", "Socket of the Docker engine, on this host.", ""},
		{"containerd.address", "Socket of containerd 1.6 or newer, on this host.", ""},
		{"containerd.namespace", "Namespace of the sandboxes and their images.", ""},
		{"containerd.pull", "Pulls a missing image from its registry, without credentials.", ""},
		{"images", "Folder of unpacked images for the drivers oci and containerd, and of archives for containerd.", ""},
	}},
	{"Kubernetes", "For the driver kubernetes: see [Kubernetes](kubernetes.md) for when to set what.", []Setting{
		{"kubernetes.kubeconfig", "File that says where the API server is.", "the service account of the server's own pod"},
		{"kubernetes.namespace", "Namespace of the sandboxes. It holds nothing else.", "that of the kubeconfig, or of the pod"},
		{"kubernetes.bridge_image", "Image of the sidecar, of this server's version.", ""},
		{"kubernetes.image_pull_policy", "`Always`, `IfNotPresent` or `Never`, for all images of sandboxes.", ""},
		{"kubernetes.image_pull_secrets", "Names of Secrets in that namespace, with credentials of registries.", ""},
		{"kubernetes.runc_class", "RuntimeClass of templates with the runtime runc.", "the cluster's usual runtime"},
		{"kubernetes.runsc_class", "RuntimeClass of templates with the runtime runsc.", ""},
		{"kubernetes.seccomp", "Seccomp profile on the nodes, relative to the kubelet's folder of profiles.", "`RuntimeDefault`"},
		{"kubernetes.cpu_percent", "Percentage of a sandbox's CPU limit that its pod requests of the scheduler.", ""},
		{"kubernetes.memory_percent", "Percentage of a sandbox's memory limit that its pod requests of the scheduler.", ""},
		{"kubernetes.node_selector", "Labels of the nodes for sandboxes: `name=value`.", ""},
		{"kubernetes.tolerations", "Taints that the pods tolerate: `name=value:effect`. Without a value any value, without an effect any effect.", ""},
		{"kubernetes.priority_class", "PriorityClass of the pods.", ""},
		{"kubernetes.service_account", "ServiceAccount of the pods. They get no token of it.", ""},
		{"kubernetes.workspaces", "`ephemeral`: files of threads are in the pod, and copied to `data`. `volume`: they are on a PersistentVolumeClaim of each user, see [files on volumes](kubernetes.md#files-on-volumes).", ""},
		{"kubernetes.volume_class", "StorageClass of these PersistentVolumeClaims.", "the cluster's default"},
		{"kubernetes.volume_size", "Size of each, for all threads of a user together.", ""},
		{"kubernetes.volume_access", "`ReadWriteOnce` or `ReadWriteMany`. With the first, all sandboxes of a user run on one node.", ""},
		{"kubernetes.unpoliced", "Makes sandboxes also where no NetworkPolicy closes their network.", ""},
	}},
	{"Start, queue and stop sandboxes", "[Lifecycle](lifecycle.md) explains how a sandbox starts, waits and stops, [templates](templates.md) what is in it.", []Setting{
		{"templates", "Folder of sandbox templates.", "the templates that are built in"},
		{"default_template", "Template of a thread that asks for none.", ""},
		{"start_timeout", "Longest time that the start of one sandbox may take.", ""},
		{"max_sandboxes", "Sandboxes that run at once on this server.", ""},
		{"max_sandboxes_per_tenant", "Sandboxes of one tenant that run at once. With `0`, only `max_sandboxes` bounds them.", ""},
		{"queue_length", "Requests of one tenant that may wait for a sandbox. With `0`, the server refuses them at once.", ""},
		{"queue_timeout", "Longest time that an exec waits there. A caller who asks again within that time keeps its turn.", ""},
		{"reclaim_idle", "The server hibernates a sandbox that was idle for so long when another one needs its slot. With `0`, it never does.", ""},
		{"max_age", "Age after which the server hibernates a sandbox, once nothing runs in it. A template's `max_age_s` wins.", "no limit"},
		{"max_age_grace", "Time that execs may go on in a sandbox beyond its age.", ""},
		{"activity", "What keeps a sandbox from being idle, beside execs: `acquire`, `file_write`, `tool_call`, `file_read`.", ""},
		{"drain_timeout", "Time that execs may go on after SIGTERM.", ""},
		{"shutdown_delay", "Shortest time that a server still answers after SIGTERM when others take its work: until load balancers send it no more requests.", ""},
	}},
	{"Bound and keep files", "[Disk space](operations.md#disk-space) and [workspaces](workspaces.md) say how.", []Setting{
		{"disk_quota", "What bounds threads' files. `kernel`: quotas of the data folder's file system. `image`: a file system in a file. `off`: nothing but the server's own counting. `auto`: the best of them that works here.", ""},
		{"disk_image_mib", "Size of `<data>/disk.img` in MiB. With `0`, `disk_quota` decides.", ""},
		{"user_disk_mib", "Limit of the files of all threads of one user together, in MiB. With `0`, only each thread's `limits.disk` counts.", ""},
		{"workspaces", "Keeps the files of threads outside of `data`, too: `s3://bucket/prefix` with the settings of `s3`, or a folder that exists.", ""},
		{"workspaces_mode", "`sync`: the server stores a change before it answers. `async`: at most `workspaces_delay` later.", ""},
		{"workspaces_delay", "The delay of `async`.", ""},
		{"workspaces_encrypt", "Encrypts these files for the keys of `secrets.key_file`. Without these keys, the files are lost.", ""},
	}},
	{"Tools and code", "How agents call tools: see [MCP servers](mcp-servers.md).", []Setting{
		{"code_execution.enabled", "Offers `execute_code` to agents. Without it, agents get every tool directly.", ""},
		{"code_execution.mode", "`always` (or `code`): agents call tools by code. `never` (or `direct`): they get tools directly. `auto`: by the number of tools. A thread may ask for another mode.", ""},
		{"code_execution.auto_threshold", "Most tools that `auto` offers directly. Tools that only a search finds do not count.", ""},
		{"code_execution.language", "Language of a call that names none: `typescript`, `javascript`, `python` or `bash`.", ""},
		{"code_execution.sandbox_timeout", "Seconds that code may run when the call does not say.", ""},
		{"code_execution.max_output_chars", "Characters of stdout in an answer when the call does not say.", ""},
		{"code_execution.regenerate_on_startup", "Makes the typed wrappers anew after a start.", ""},
		{"code_execution.tenants", "The same settings for single tenants: `{acme: {mode: never}}`.", ""},
		{"tool_calls_per_exec", "Tool calls that one exec may make.", ""},
		{"tool_mib_per_exec", "MiB that these calls may return together.", ""},
		{"tool_timeout", "Longest time of one tool call. A server and a tool can have a shorter one.", ""},
		{"tool_drift", "What happens to a tool that [has changed](tool-drift.md): `record`, or `quarantine` until an administrator approves it.", ""},
	}},
	{"Skills and plugins", "What agents know: see [skills](skills.md) and [plugins](plugins.md).", []Setting{
		{"skills", "Folder that holds `public/`.", "the skills that are built in"},
		{"skill_sources", "File `skills.json` with more skills for all users: see [skill archives](skill-archives.md).", ""},
		{"strict_frontmatter", "Installs only skills that keep to the Agent Skills standard.", ""},
		{"strict_install", "Installs no skill in which the static scan finds an error.", ""},
		{"trust_installs", "Runs scripts of skills that users install. With `false`, each run needs an approval.", ""},
		{"plugins.addresses", "Networks (`10.1.0.0/16`) where plugins and their MCP servers may be, besides the public internet.", ""},
		{"plugins.folders", "Folders of this host from which users may install plugins.", ""},
		{"plugins.egress", "Hosts that programs of plugins may reach (`registry.npmjs.org`). Without any, they reach none.", ""},
		{"plugins.run_commands", "Runs `` !`command` `` of plugins' commands in the thread's sandbox.", ""},
		{"s3.endpoint", "`https://host[:port]` of the object store.", "Amazon's"},
		{"s3.region", "Region of the object store.", "`us-east-1`"},
		{"s3.access_key", "Access key. Without one, the server reads objects without credentials.", "`AWS_ACCESS_KEY_ID`"},
		{"s3.secret_key", "Secret key.", "`AWS_SECRET_ACCESS_KEY`"},
		{"s3.session_token", "Session token.", "`AWS_SESSION_TOKEN`"},
		{"s3.path_style", "Addresses objects as `https://host/bucket/key`, not `https://bucket.host/key`.", ""},
		{"s3.buckets", "Buckets, or `bucket/folder`, from which users may install skills. Without any, they may from none.", ""},
		{"s3.addresses", "Networks (`10.1.0.0/16`) where the object store may be, besides the public internet.", ""},
	}},
	{"Decide who may call what", "[Policy](policy.md), [approvals](approvals.md) and [limits](limits.md).", []Setting{
		{"policy", "File with the rules that say who may call what. `skerry policy default` prints the built-in ones.", "`<data>/policy/policy.yaml`, and the built-in rules as long as that is missing"},
		{"approvals.timeout", "Longest time that a call waits for a person. Then it is denied.", ""},
		{"approvals.wait_per_exec", "Time for which an exec's deadline stands still, altogether, while its calls wait.", ""},
		{"approvals.webhook_url", "URL that the server tells of each request. Its answer may decide it.", ""},
		{"approvals.webhook_secret", "Key that signs requests and answers. It has at least 32 characters.", ""},
		{"limits.tenants", "What a tenant may take: `{\"*\": {execs: 100}}`.", ""},
		{"limits.users", "What a user may take: `{\"*\": {sandboxes: 5}, acme/ann: {sandboxes: 20}}`.", ""},
		{"limits.keys", "What a key may take, for all its users together: `{key_0123456789abcdef: {requests_per_minute: 600}}`.", ""},
	}},
	{"Keep secrets", "Values for MCP servers and execs: see [secrets](secrets.md).", []Setting{
		{"secrets.key_file", "File with the age identities for which secrets are encrypted. It lies outside of `data`.", "`/etc/skerry/secrets-key.txt`; `<data>.keys/secrets.key` when `data` is set"},
		{"secrets.dir", "Folder whose files are secrets, as Kubernetes mounts them.", ""},
		{"secrets.env", "Variables of the server that are secrets.", ""},
		{"secrets.exec", "Names of these files and variables that an exec may have.", ""},
		{"secrets.strict_env", "Lets `${NAME}` in `extensions_config.json` stand for `secrets.env` alone.", ""},
	}},
	{"Record and trace", "What happened: see [audit](audit.md) and [tracing](tracing.md).", []Setting{
		{"audit.on_failure", "`closed`: the server refuses what it cannot record. `open`: it does it, and records the gap later.", ""},
		{"audit.signing_key_file", "File with the private key that signs the log. The server makes one where none is, never in `data`. With an empty value, it signs nothing.", ""},
		{"audit.signer", "`unix:/path`, or a command, that signs instead.", ""},
		{"audit.public_key_file", "File with the signer's public key.", ""},
		{"audit.redis_records", "Newest records of each tenant that Redis keeps.", ""},
		{"audit.redis_mib", "MiB of their JSON that Redis keeps. With `0`, there is no limit.", ""},
		{"audit.redis_age", "Age up to which Redis keeps them. With `0`, there is no limit.", ""},
		{"audit.webhook", "`https://…` that gets all records: see [sinks](audit.md#sinks).", ""},
		{"audit.webhook_secret", "Key that signs them. It has at least 16 bytes.", ""},
		{"audit.webhook_addresses", "Networks (`10.1.0.0/16`) where the webhook may be, besides the public internet.", ""},
		{"audit.syslog", "`tcp://`, `tls://` or `udp://` with `host:port`, or `unix:///path`, that gets all records.", ""},
		{"audit.archive", "Folder that exists, or `s3://bucket/prefix` with the settings of `s3`, that gets full segments of the log: see [archive](audit.md#archive-and-retention).", ""},
		{"audit.keep_segments", "Days for which archived segments stay on this disk. With `0`, they stay for ever.", ""},
		{"tracing.endpoint", "Collector of OpenTelemetry traces: `http://host:4318`.", "`OTEL_EXPORTER_OTLP_ENDPOINT`"},
		{"tracing.sample_percent", "Percentage of the traces that begin here that are recorded.", ""},
	}},
}
