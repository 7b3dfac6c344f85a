package archtest

import "strings"

const module = "github.com/skerry-sandbox/skerry/"

// row says which packages of ours one package may import. An entry that ends in /... stands for a
// package and all below it. Why is printed with a violation.
type row struct {
	dir  string
	ours string // separated by blanks, without "internal/" before the names
	why  string
}

// A driver knows its contract and what drivers have in common, never another driver.
const driverOurs = "sandbox driver driver/engine/hardening driver/engine/idlock driver/engine/runtimeprobe"

// table has a row for every package but those of cmd/, which wire all parts: a package without one
// is a violation. Tests may import what they like.
var table = []row{
	{"internal/sandbox", "", "the vocabulary imports nothing of ours"},

	{"internal/api/auth", "sandbox store", "keys are records"},
	{"internal/api/auth/oidc", "sandbox platform/lockedfile", "a token says all there is to know"},
	{"internal/api/console", "", "files that are compiled in; what they show comes from the API"},
	{"internal/api/held", "sandbox", "bytes that adapters keep, whatever is in them"},
	{"internal/api/inprocess", "sandbox", "requests of the public API, whose handler comes in"},
	{"internal/api/codeoutput", "", "text and errors of what code wrote, for the adapters of others' interpreters"},
	{"internal/api/jupyter", "sandbox api/codeoutput api/held api/inprocess platform/buildinfo", "it translates to the public API, whose handler comes in"},
	{"internal/api/librechat", "sandbox api/codeoutput api/held api/inprocess platform/jsonedit workspace/paths", "it translates to the public API, whose handler comes in"},
	{"internal/api/deerflow", "sandbox api/auth api/held api/inprocess platform/jsonedit workspace/paths", "it translates to the public API, whose handler comes in; keys of addresses through an interface that it declares"},
	{"internal/api/e2b", "sandbox service audit workspace/paths api/auth api/codeoutput api/held api/rest api/e2b/... api/rest/exchange api/rest/route platform/boundedproto platform/keylock", "an adapter translates to use cases; its routes are served as all others"},
	{"internal/api/e2b/envd/filesystem", "", "generated"},
	{"internal/api/e2b/envd/filesystem/filesystemconnect", "api/e2b/envd/filesystem", "generated"},
	{"internal/api/e2b/envd/process", "", "generated"},
	{"internal/api/e2b/envd/process/processconnect", "api/e2b/envd/process", "generated"},
	{"internal/api/mcp", "sandbox service audit prompt observe/tracing workspace/paths platform/every", "it translates the protocol to use cases; who checks requests comes in as an interface"},
	{"internal/api/rest", "api/rest/overview sandbox service api/held api/mcp api/auth audit audit/summary prompt secrets workspace/paths observe/tracing policy tools/packs api/rest/...", "HTTP translates to use cases, and reaches administration through interfaces that it declares"},
	{"internal/api/rest/access", "sandbox api/auth api/rest/exchange api/rest/problem api/rest/route observe/tracing", "who may make a request; keys are behind an interface that it declares"},
	{"internal/api/rest/audits", "sandbox audit audit/export api/rest/access api/rest/eventstream api/rest/exchange api/rest/route", "routes of the audit log, which is behind an interface that it declares"},
	{"internal/api/rest/eventstream", "sandbox api/rest/exchange api/rest/problem", "it writes events, whatever they say"},
	{"internal/api/rest/exchange", "sandbox api/rest/problem observe/tracing", "one request and its answer; it knows no route"},
	{"internal/api/rest/execs", "sandbox service api/rest/access api/rest/eventstream api/rest/exchange api/rest/problem api/rest/route", "routes translate to use cases"},
	{"internal/api/rest/overview", "sandbox observe/metrics observe/series api/rest/exchange api/rest/route", "routes translate to use cases"},
	{"internal/api/rest/logins", "sandbox api/auth api/auth/oidc api/rest/access api/rest/exchange api/rest/route", "routes translate to use cases; identity providers are behind an interface that it declares"},
	{"internal/api/rest/files", "sandbox service audit workspace/paths api/rest/access api/rest/eventstream api/rest/exchange api/rest/problem api/rest/route", "routes translate to use cases"},
	{"internal/api/rest/forward", "sandbox api/rest/exchange api/rest/problem api/rest/route observe/tracing", "it passes requests on, whatever they ask for; other servers are behind an interface that it declares"},
	{"internal/api/rest/idempotency", "sandbox api/rest/eventstream api/rest/exchange api/rest/problem api/rest/route", "it remembers answers, whatever they say"},
	{"internal/api/rest/problem", "sandbox", "what a client sees of an error"},
	{"internal/api/rest/route", "sandbox api/rest/exchange api/rest/problem platform/jsonedit", "a route declares its rule; who serves it, others know"},
	{"internal/service", "sandbox audit prompt workspace/paths", "use cases are interfaces; internal/app knows who implements them"},

	{"internal/instance/capacity", "sandbox", "it gives out places and knows nothing of what takes them"},
	{"internal/instance", "audit driver instance/capacity limits ownership platform/redact sandbox sandboxapi/... skills tools/bridge workspace/filesync", "one sandbox on this server: what it is and how far it is; it calls no driver"},
	{"internal/instance/hooks", "driver instance instance/load ownership platform/deadline platform/lockedfile sandbox sandboxapi/... skills skills/mounted store tools/bridge tools/wrappers workspace workspace/copies workspace/quota workspace/threads workspace/volumes", "how instances come up and go down; the server around them is behind an interface that it declares"},
	{"internal/instance/load", "driver execution instance limits sandbox", "it watches instances; what ends one is behind an interface that it declares"},
	{"internal/instance/pool", "audit driver instance instance/capacity instance/hooks observe/metrics ownership/ownerrecord sandbox store workspace workspace/filesync", "it keeps what waits for threads, which the hooks make; what claims one, others know"},
	{"internal/instance/savedspec", "platform/lockedfile sandbox", "it reads and writes one kind of file"},
	{"internal/instance/lifecycle", "audit driver instance instance/capacity instance/hooks instance/pool instance/savedspec instance/usage limits observe/metrics ownership platform/deadline sandbox workspace/copies workspace/threads", "slots, pauses and ends of instances; it starts none"},
	{"internal/instance/usage", "instance platform/deadline sandbox store workspace", "it writes what threads use; when a sandbox ends, others know"},
	{"internal/instance/start", "audit driver execution instance instance/capacity instance/hooks instance/lifecycle instance/pool ownership ownership/drain policy sandbox skills/mounted store workspace workspace/copies workspace/threads workspace/volumes", "it starts instances with the hooks; what runs in them, others know"},

	{"internal/ownership/ownerrecord", "sandbox platform/lockedfile", "who holds a thread is text in files"},
	{"internal/ownership/peer", "sandbox ownership/replica", "servers ask each other by socket; what a request means, others know"},
	{"internal/ownership/replica", "platform/lockedfile platform/ownedsocket", "it knows processes of one data folder, not what they do"},
	{"internal/ownership", "ownership/ownerrecord platform/lockedfile sandbox store platform/every", "leases and owner records; sandboxes are behind an interface that it declares"},
	{"internal/ownership/drain", "audit execution instance instance/hooks instance/lifecycle ownership platform/deadline sandbox", "it ends the work of this server, and hands threads over"},
	{"internal/ownership/placement", "execution instance instance/lifecycle ownership ownership/drain sandbox", "which server answers; it starts nothing"},
	{"internal/ownership/recovery", "audit driver execution execution/contexts instance instance/capacity instance/hooks instance/lifecycle instance/pool instance/savedspec limits observe/metrics ownership ownership/ownerrecord platform/deadline sandbox workspace/copies workspace/volumes platform/every", "it adopts and removes what others left behind"},

	{"internal/orchestrator", "audit driver execution execution/contexts execution/rootfs execution/run instance instance/capacity instance/hooks instance/lifecycle instance/load instance/pool instance/savedspec instance/start instance/usage limits observe/metrics observe/tracing ownership ownership/drain ownership/ownerrecord ownership/placement ownership/recovery platform/deadline prompt sandbox sandboxapi/... skills skills/mounted store tools/activation tools/bridge tools/call tools/channels tools/codeapi tools/wrappers workspace workspace/copies workspace/files workspace/filesync workspace/paths workspace/quota workspace/snapshot workspace/threads workspace/volumes skills/upstream threadevents", "use cases know contracts, never what starts containers, speaks MCP or speaks HTTP"},
	{"internal/execution/contexts", "audit instance platform/deadline sandbox sandboxapi/...", "interpreters of a thread; sandboxes are behind an interface that it declares"},
	{"internal/execution", "audit execution/contexts instance limits observe/tracing platform/deadline platform/redact sandbox sandboxapi/... workspace/filesync workspace/paths", "what is known of execs, and what callers ask of them; it starts none"},
	{"internal/execution/rootfs", "audit instance limits sandbox sandboxapi/... workspace/paths", "files that only a sandbox has; sandboxes are behind an interface that it declares"},
	{"internal/execution/run", "audit driver execution execution/contexts instance instance/load limits observe/metrics observe/tracing platform/deadline platform/redact policy sandbox sandboxapi/... skills skills/mounted tools/bridge tools/call tools/codeapi/typescript tools/resultfile tools/wrappers workspace/paths skills/format", "it starts execs and sees them to their ends; sandboxes and files are behind interfaces that it declares"},

	{"internal/workspace/paths", "platform/boundedregexp platform/hostiletar sandbox platform/rename", "files stand below the use cases"},
	{"internal/workspace/quota", "platform/lockedfile platform/rename", "it knows folders and the kernel, no thread"},
	{"internal/workspace/snapshot", "platform/lockedfile sandbox platform/s3", "it keeps files of threads; who runs them, others know"},
	{"internal/workspace/copies", "driver instance ownership sandbox sandboxapi/... workspace workspace/filesync workspace/paths workspace/volumes", "when files are copied between servers and sandboxes; it starts and ends none"},
	{"internal/workspace/filesync", "driver sandbox platform/retry", "it copies files by the driver's contract, and knows no thread"},
	{"internal/workspace", "platform/lockedfile sandbox workspace/paths workspace/quota", "folders of threads on this disk; it knows no sandbox that runs"},
	{"internal/workspace/volumes", "instance instance/savedspec ownership platform/deadline platform/lockedfile sandbox workspace workspace/filesync", "which of two folders of a thread is ahead; the driver is behind an interface that it declares"},
	{"internal/workspace/threads", "instance instance/savedspec platform/deadline platform/lockedfile sandbox store workspace workspace/quota workspace/snapshot platform/every", "threads as such; sandboxes are behind an interface that it declares"},
	{"internal/workspace/files", "audit instance instance/lifecycle limits ownership ownership/drain sandbox skills skills/mounted workspace workspace/copies workspace/paths workspace/quota workspace/threads", "files of threads, as callers use them"},

	{"internal/driver", "sandbox", "a contract imports the vocabulary"},
	{"internal/driver/containerd", driverOurs + " driver/engine/runtimes driver/engine/freeze driver/engine/cgroup driver/engine/ociconfig driver/engine/events driver/engine/imagelimit platform/lockedfile", "a driver knows its contract, never another driver"},
	{"internal/driver/containerd/containerdtest", "", "it starts a containerd for tests"},
	{"internal/driver/docker", driverOurs + " driver/engine/runtimes driver/engine/freeze driver/engine/cgroup driver/engine/events", "a driver knows its contract, never another driver"},
	{"internal/driver/docker/dockertest", "driver/containerd/containerdtest", "it starts an engine for tests, with a containerd of its own"},
	{"internal/driver/drivertest", "sandbox platform/anchor driver driver/engine/hardening driver/drivertest/...", "the suite knows the contract, no driver"},
	{"internal/driver/drivertest/probe", "sandbox platform/anchor platform/confine driver/engine/runtimeprobe driver/drivertest/probewire", "the suite's program in the sandbox"},
	{"internal/driver/drivertest/probewire", "sandbox", "what the suite and its program say to each other"},
	{"internal/driver/engine/cgroup", "", "it knows files of the kernel, no sandbox"},
	{"internal/driver/engine/events", "driver platform/retry sandbox", "what drivers have in common knows no driver"},
	{"internal/driver/engine/freeze", "sandbox driver/engine/idlock", "what drivers have in common knows no driver"},
	{"internal/driver/engine/hardening", "sandbox", "what drivers have in common knows no driver"},
	{"internal/driver/engine/idlock", "sandbox platform/keylock", "what drivers have in common knows no driver"},
	{"internal/driver/engine/imagelimit", "", "it knows archives, no driver"},
	{"internal/driver/engine/ociconfig", "sandbox driver/engine/hardening driver/engine/cgroup", "what drivers have in common knows no driver"},
	{"internal/driver/engine/procid", "", "it knows processes, not what they make"},
	{"internal/driver/engine/runtimes", "driver driver/engine/hardening driver/engine/ociconfig driver/engine/runtimeprobe sandbox", "what drivers have in common knows no driver"},
	{"internal/driver/engine/runtimeprobe", "sandbox platform/lockedfile driver/engine/procid", "what drivers have in common knows no driver"},
	{"internal/driver/engine/tunnels", "sandbox", "what drivers have in common knows no driver"},
	{"internal/driver/kubernetes", "sandbox driver driver/engine/events driver/engine/hardening driver/engine/idlock driver/engine/tunnels platform/anchor platform/buildinfo platform/confine sidecar sidecar/pki platform/retry", "a driver knows its contract and its tunnel, never another driver"},
	{"internal/driver/memory", driverOurs + " driver/engine/events sandboxapi/link platform/retry", "a driver knows its contract, never another driver; this one plays sandboxd, too"},
	{"internal/driver/remote", "sandbox driver driver/engine/events driver/engine/hardening driver/engine/tunnels api/e2b/envd/process api/e2b/envd/process/processconnect platform/boundedproto platform/buildinfo platform/confine platform/lockedfile platform/retry sidecar sidecar/nest sidecar/pki sidecar/pod", "a driver knows its contract and its tunnel, never another driver; of E2B's API it knows the generated messages"},
	{"internal/driver/oci", driverOurs + " driver/engine/runtimes driver/engine/freeze driver/engine/cgroup driver/engine/ociconfig driver/engine/procid driver/engine/imagelimit platform/lockedfile", "a driver knows its contract, never another driver"},

	{"internal/sandboxd", "sandbox platform/buildinfo sandboxapi/... sandboxd/... platform/retry", "the daemon in the sandbox stays small and knows no server"},
	{"internal/sandboxd/files", "", "files know no protocol"},
	{"internal/sandboxd/interp", "sandboxd/process", "interpreters are processes"},
	{"internal/sandboxd/filter", "", "it knows system calls, not who makes them"},
	{"internal/sandboxd/wasm", "sandbox", "a module's runner is a process of its own, which knows no server and no daemon"},
	{"internal/sandboxd/wasm/wasmtest", "", "modules for tests"},
	{"internal/sandboxd/process", "platform/deadline sandboxd/filter sandboxd/procfs sandboxd/spill", "processes know no protocol"},
	{"internal/sandboxd/spill", "", "a file, which knows no exec"},
	{"internal/sandboxd/procfs", "", "it reads what the kernel tells, and starts nothing"},

	{"internal/sandboxapi", "", "the contract with sandboxd stands alone"},
	{"internal/sandboxapi/client", "platform/boundedproto sandbox sandboxapi/...", "checked calls of the contract"},
	{"internal/sandboxapi/link", "platform/ownedsocket platform/lockedfile", "the connection knows no messages"},
	{"internal/sandboxapi/v1", "", "generated"},
	{"internal/sandboxapi/v1/sandboxv1connect", "sandboxapi/v1", "generated"},

	{"internal/sidecar", "sandbox sidecar/... platform/retry", "the server's end of a tunnel knows files and sockets, no pod and no thread"},
	{"internal/sidecar/nest", "sandbox sidecar/pod", "it starts a sandbox, and knows no server"},
	{"internal/sidecar/pki", "sandbox platform/lockedfile", "certificates know names, not what is said"},
	{"internal/sidecar/pod", "sandbox platform/anchor platform/lockedfile platform/ownedsocket sidecar/tree sidecar/wire", "the sandbox's end of a tunnel knows no server"},
	{"internal/sidecar/tree", "", "trees of files are changed by whoever asks"},
	{"internal/sidecar/wire", "platform/boundedproto sandbox sidecar/tree", "messages know what is said, not who says it"},

	{"internal/tools/activation", "sandbox", "a list of names in a thread's record; the hub and the threads are behind interfaces that it declares"},
	{"internal/tools/argform", "", "a form knows schemas, not who calls tools"},
	{"internal/tools/bridge", "sandbox platform/ownedsocket platform/redact platform/deadline observe/tracing tools/call tools/resultfile", "the bridge decides whose a call is; tools/call makes it"},
	{"internal/tools/channels", "policy sandbox skills/upstream tools/drift/toolscan tools/hub/result tools/hub/schema tools/packs tools/packs/manifest", "tools of skills are found and called here; who may call them, the policy says"},
	{"internal/tools/codeapi/wrapperpath", "sandbox", "names of files are a matter of texts"},
	{"internal/tools/codeapi", "sandbox platform/rename tools/codeapi/wrapperpath", "wrappers are made from a tool set alone"},
	{"internal/tools/codeapi/standalone", "sandbox tools/codeapi", "a tree for outside is the tree for sandboxes with other helpers"},
	{"internal/tools/drift", "sandbox store audit", "it remembers what servers say, not how they are reached"},
	{"internal/tools/drift/toolscan", "sandbox", "a scan reads text and knows no server"},
	{"internal/tools/egress", "sandbox", "the way out knows hosts, not who asks"},
	{"internal/tools/hub", "sandbox platform/redact platform/editdistance platform/networks tools/search tools/codeapi/wrapperpath config/extensions platform/jsonedit platform/lockedfile tools/drift/toolscan tools/egress tools/hub/... observe/tracing platform/every", "the hub knows tools, not who calls them"},
	{"internal/tools/hub/breaker", "", "it knows a clock, not what failed"},
	{"internal/tools/hub/result", "sandbox tools/hub/excerpt tools/hub/schema", "a result is JSON, whoever wrote it"},
	{"internal/tools/hub/excerpt", "sandbox", "a text is shortened, whoever wrote it"},
	{"internal/tools/hub/serverconfig", "sandbox config/extensions platform/jsonedit platform/lockedfile platform/networks platform/redact tools/hub/excerpt tools/hub/login", "a configuration is text and values; it connects to nothing"},
	{"internal/tools/hub/schema", "sandbox platform/boundedregexp platform/jsonedit tools/hub/excerpt", "a schema judges values, not calls"},
	{"internal/tools/hub/transport", "sandbox platform/jsonedit tools/egress tools/hub/excerpt tools/hub/login tools/hub/serverconfig", "a transport carries messages, and knows no tool"},
	{"internal/tools/hub/login", "sandbox platform/lockedfile", "a login knows a server's address, not what is said to it"},
	{"internal/tools/resultfile", "sandbox", "it knows a result and where its files belong; who writes them is a function"},
	{"internal/tools/packs", "sandbox platform/boundedproto tools/packs/manifest /sdk/packs/...", "it knows streams and what is offered on them; who may provide what comes in as an interface"},
	{"internal/tools/packs/elsewhere", "sandbox store tools/packs tools/packs/manifest", "it knows records and other servers, and no stream"},
	{"internal/tools/packs/identity", "platform/lockedfile sandbox store tools/packs", "it knows keys and signatures, and no stream"},
	{"internal/tools/packs/manifest", "sandbox tools/hub/schema /sdk/packs/v1", "a manifest is text; it knows no stream"},
	{"internal/tools/search", "sandbox", "a search knows a tool set, not where it comes from"},
	{"internal/tools/servers", "sandbox driver tools/egress platform/ownedsocket", "it starts sandboxes by their contract"},
	{"internal/tools/call", "audit limits observe/metrics platform/redact policy sandbox store tools/resultfile", "the one way of a tool call; threads and the hub are behind interfaces that it declares"},
	{"internal/tools/wrappers", "instance sandbox tools/codeapi", "it writes folders of instances; the hub is behind an interface that it declares"},
	{"internal/tools/codeapi/typescript", "sandbox tools/codeapi platform/subprocess", "a text becomes another text"},

	{"internal/policy", "sandbox platform/boundedregexp platform/editdistance platform/lockedfile platform/every", "a policy knows requests and tools; the hub and those who approve come in as interfaces"},
	{"internal/policy/replay", "sandbox audit policy", "it tries rules on records; the log and the catalog of tools come in as interfaces"},

	{"internal/approval", "sandbox audit store platform/deadline platform/webhook platform/retry", "it asks people about calls, and makes none"},

	{"internal/limits", "sandbox store", "limits are counted in the state; what takes them, others know"},

	{"internal/skills", "sandbox platform/lockedfile platform/rename skills/format", "skills are files and a vocabulary; who switches them on comes in as a function"},
	{"internal/skills/format", "sandbox", "what a skill's folder says; where it lies and who has it, others know"},
	{"internal/skills/archive", "platform/hostiletar sandbox", "an archive is bytes and names, whatever is in it"},
	{"internal/skills/install", "sandbox audit platform/download skills skills/archive skills/lint skills/scan skills/format", "a use case: it puts what a user sends through all checks, into a library that it declares"},
	{"internal/skills/lint", "sandbox skills skills/archive skills/scan platform/subprocess skills/format", "it puts all checks of a skill together"},
	{"internal/skills/runnable", "sandbox skills platform/subprocess skills/format", "what a skill needs is in its files; it probes through an interface that it declares"},
	{"internal/skills/scan", "sandbox", "a scan reads text and knows no skill"},
	{"internal/skills/source", "platform/download platform/lockedfile sandbox skills skills/archive skills/format", "sources become archives; who installs them is another's business"},
	{"internal/skills/upstream", "sandbox skills tools/search skills/format", "what MCP servers offer is lists and files; servers and threads are behind interfaces that it declares"},
	{"internal/skills/mounted", "audit instance platform/deadline sandbox skills store tools/search skills/format", "what sandboxes show of skills; sandboxes are behind an interface that it declares"},

	{"internal/plugins", "sandbox skills skills/archive plugins/folder plugins/gitfetch plugins/slash plugins/tree platform/oneline config/extensions platform/lockedfile audit skills/scan platform/jsonedit platform/download skills/format", "plugins are files, and skills among them; who serves them comes in as functions"},
	{"internal/plugins/folder", "platform/lockedfile plugins/tree sandbox skills/archive", "it follows folders and knows nothing of what a plugin is"},
	{"internal/plugins/tree", "platform/lockedfile sandbox skills skills/archive skills/format", "files of plugins: how many there may be, and where they are kept"},
	{"internal/plugins/gitfetch", "sandbox", "it reads commits, whatever is in them"},
	{"internal/plugins/typed", "platform/editdistance plugins/slash sandbox", "a message is text; commands are behind an interface that it declares"},
	{"internal/plugins/slash", "platform/oneline sandbox skills skills/format", "a command is a text with places; whatever runs or reads something for it comes in as functions"},

	{"internal/prompt", "sandbox", "prompts are made from skills and tool sets"},

	{"internal/template", "sandbox platform/editdistance", "templates are text and a vocabulary"},
	{"internal/template/sbom", "", "a list of parts is text, whatever printed it"},
	{"internal/template/contents", "sandbox template/sbom", "it asks images what they are made of; sandboxes are behind an interface that it declares"},

	{"internal/audit", "audit/journal audit/record audit/segment audit/summary platform/fold platform/lockedfile sandbox store platform/retry audit/verify", "the log stands below the use cases"},
	{"internal/audit/archive", "platform/lockedfile sandbox platform/s3", "it stores objects, whatever is in them"},
	{"internal/audit/export", "audit platform/buildinfo sandbox", "a format knows records, not where they come from"},
	{"internal/audit/record", "sandbox", "a record is a line of text; it knows no file"},
	{"internal/audit/journal", "audit/record audit/segment platform/lockedfile sandbox store/groupcommit", "it writes the records of one writer, and knows neither readers nor signatures"},
	{"internal/audit/segment", "audit/record platform/lockedfile", "it knows files and lines, not who writes or reads them"},
	{"internal/audit/summary", "sandbox", "it counts what it is told, and reads nothing"},
	{"internal/audit/verify", "audit/record audit/segment", "a log is checked from its files, and not by what wrote them"},
	{"internal/audit/signing", "audit/record platform/keyfile platform/lockedfile audit/verify", "keys and who is believed; the log itself knows only signatures"},
	{"internal/audit/sink", "audit tools/egress sandbox platform/webhook", "a sink knows records and addresses"},

	{"internal/store", "platform/fold platform/lockedfile sandbox store/format store/journal store/socketpair store/threadscripts", "state stands below the use cases"},
	{"internal/store/threadscripts", "sandbox", "scripts know keys as arguments, and no connection"},
	{"internal/store/journal", "platform/lockedfile sandbox store/groupcommit", "it knows records, not what is in them"},
	{"internal/store/format", "platform/lockedfile sandbox", "it knows a version, not what has it"},
	{"internal/store/socketpair", "", "it knows bytes, not what is in them"},
	{"internal/store/groupcommit", "", "it knows files, not what is in them"},
	{"internal/store/redistest", "", "it starts a Redis for tests"},

	{"internal/secrets", "sandbox store platform/keyfile platform/lockedfile platform/every", "values by name stand below the use cases; who gets them, others know"},

	{"internal/observe/doctor", "driver/engine/cgroup driver/engine/hardening", "it looks at the machine; what the server's parts are like comes in as checks"},
	{"internal/observe/metrics", "sandbox", "it counts and times; what it counts comes in"},
	{"internal/observe/series", "sandbox observe/metrics platform/every", "it keeps what the metrics count, over time"},
	{"internal/observe/tracing", "sandbox", "spans have names; what they stand for, others know"},

	{"internal/platform/anchor", "", "it makes connections and knows nothing of what is said on them"},
	{"internal/platform/boundedproto", "platform/jsonedit", "it decodes messages, whatever they are"},
	{"internal/platform/boundedregexp", "", "it matches texts, wherever they come from"},
	{"internal/platform/fold", "", "it compares texts, wherever they come from"},
	{"internal/platform/buildinfo", "", "it stands below everything"},
	{"internal/platform/confine", "", "it knows the kernel, not what it confines"},
	{"internal/platform/deadline", "", "it knows a clock, not what it is for"},
	{"internal/platform/download", "sandbox tools/egress", "it reads what is at an address, whatever it is"},
	{"internal/platform/editdistance", "", "it compares two words"},
	{"internal/platform/networks", "", "it reads texts"},
	{"internal/platform/every", "", "it knows a clock, not what is repeated"},
	{"internal/platform/hostiletar", "", "it reads archives, whatever is in them"},
	{"internal/platform/jsonedit", "", "text, and nothing else"},
	{"internal/platform/keyfile", "", "it looks at places, not at keys"},
	{"internal/platform/keylock", "", "it knows keys, not what they stand for"},
	{"internal/platform/lockedfile", "", "it stands below everything"},
	{"internal/platform/oneline", "", "it makes one line of a text"},
	{"internal/platform/ownedsocket", "", "it stands below everything"},
	{"internal/platform/retry", "", "it knows pauses, not what is tried"},
	{"internal/platform/redact", "sandbox platform/jsonedit", "it knows texts, not where they go"},
	{"internal/platform/rename", "", "it knows names, not what they are of"},
	{"internal/platform/rename/refused", "", "it filters system calls for tests"},
	{"internal/platform/s3", "sandbox tools/egress", "it reads and stores objects, whatever is in them"},
	{"internal/platform/s3/s3test", "", "it starts a server for tests"},
	{"internal/platform/subprocess", "", "it runs functions, whatever they read"},
	{"internal/platform/tlsfiles", "platform/every", "it stands below everything that serves"},
	{"internal/platform/webhook", "", "it signs bytes, whatever they say"},

	{"internal/config", "platform/networks", "it stands below everything else"},
	{"internal/config/extensions", "sandbox platform/jsonedit platform/lockedfile", "what is switched on is text in files; what a switch means, others know"},

	{"internal/app", "api/auth api/auth/oidc api/rest/overview app/findings observe/series policy/replay api/console api/deerflow api/e2b api/held api/jupyter api/librechat api/rest approval audit audit/archive audit/record audit/signing audit/sink config config/extensions driver driver/containerd driver/docker driver/engine/hardening driver/kubernetes driver/oci driver/remote limits observe/metrics observe/tracing orchestrator ownership/drain ownership/placement instance/lifecycle ownership/peer ownership/replica platform/buildinfo platform/every platform/lockedfile platform/rename platform/s3 platform/tlsfiles plugins plugins/folder policy prompt sandbox secrets sidecar/pki skills skills/archive skills/install skills/runnable skills/source service store store/format template template/contents tools/bridge tools/channels tools/codeapi tools/drift tools/egress tools/hub tools/servers workspace/paths workspace/quota workspace/snapshot /plugins /sandbox-templates /skills ownership instance tools/call instance/hooks api/rest/exchange tools/hub/transport instance/savedspec instance/start execution execution/run workspace workspace/files audit/verify plugins/typed platform/download threadevents tools/packs tools/packs/elsewhere tools/packs/identity app/buckets app/environment skills/format", "it builds the server of all its parts, and knows no command"},
	{"internal/threadevents", "audit ownership/ownerrecord prompt sandbox service workspace/paths", "it tells followers what others publish; threads, tools and skills are behind interfaces that it declares"},

	{"internal/app/buckets", "app/environment config platform/s3 sandbox skills/archive", "a configuration becomes options of a client"},
	{"internal/app/environment", "", "it reads variables, whatever they are for"},
	{"internal/app/findings", "api/rest/overview audit driver observe/doctor sandbox store workspace/quota", "it looks at the parts of a server, which come in"},
	{"internal/app/cli", "api/auth app config platform/buildinfo platform/editdistance plugins policy sandbox secrets template tools/argform app/cli/... /sdk/go /sandbox-templates audit/verify app/environment", "commands ask a server by its public API, or open parts of one by internal/app; no part knows them"},
	{"internal/app/cli/audit", "app/cli/client app/cli/exit app/cli/output audit audit/record audit/signing audit/verify config tools/argform /sdk/go app/environment", "commands on the audit log ask a server, or read the files of a log"},
	{"internal/app/cli/client", "app/cli/exit app/cli/output platform/buildinfo sandbox /sdk/go", "it calls a server by the Go SDK, and knows no command"},
	{"internal/app/cli/examination", "api/rest app app/findings app/cli/exit app/cli/output audit audit/record audit/signing audit/sink config config/extensions driver driver/containerd driver/docker driver/kubernetes instance observe/doctor ownership/replica platform/buildinfo platform/redact platform/s3 policy sandbox secrets sidecar/pki skills skills/runnable store template tools/argform tools/egress tools/hub tools/hub/transport workspace/quota workspace/snapshot app/buckets", "it opens the parts of a server by internal/app, and looks at each"},
	{"internal/app/cli/exit", "sandbox", "exit codes are numbers for kinds of errors"},
	{"internal/app/cli/mcp", "app app/cli/client app/cli/exit app/cli/mcpstdio app/cli/output config platform/buildinfo platform/lockedfile sandbox secrets tools/argform tools/codeapi/standalone tools/hub", "commands on tools ask a server, or start MCP servers by the hub"},
	{"internal/app/cli/mcpstdio", "", "it carries messages of MCP, whatever they say"},
	{"internal/app/cli/output", "tools/argform", "it prints values, whatever they are of"},
	{"internal/app/cli/profiles", "app/cli/client app/cli/exit app/cli/output", "a profile is a server and a key"},
	{"internal/app/cli/runs", "app/cli/client app/cli/exit app/cli/output platform/every tools/argform /sdk/go", "commands on what runs ask a server"},
	{"internal/app/cli/skills", "app/cli/client app/cli/exit app/cli/output app/cli/runs config platform/download platform/lockedfile platform/s3 sandbox skills/archive skills/lint skills/scan skills/source tools/argform /sdk/go /skills app/buckets skills/format", "commands on skills ask a server, or work on folders of this machine"},

	{"internal/archtest", "", "it reads text"},

	{"internal/attack", "", "a table of attacks; its tests use the product as it is"},
	{"internal/attack/bomb", "", "programs, and nothing else"},
	{"internal/attack/onserver", "", "a server is attacked by its public API and from its sandboxes"},
	{"internal/attack/probe", "attack/wire sandboxd/filter", "the attacker in the sandbox"},
	{"internal/attack/wire", "", "what the attacks and their program say to each other"},

	{"internal/e2e", "", "the whole is tested through its public API"},
	{"internal/e2e/docblock", "", "documents are text; what is in their blocks, the tests know that use them"},

	{"bench", "attack/bomb audit api/auth policy sandbox store driver/containerd/containerdtest /sandbox-templates", "the whole is measured through its public API; what rights and records cost, by who judges and writes them"},
	{"bench/chaos", "audit driver/containerd/containerdtest driver/docker/dockertest audit/verify /sdk/go/packs", "the whole is harmed from outside; what it recorded is read by who wrote it"},
	{"bench/fleet", "audit tools/bridge tools/codeapi driver/memory config/extensions api/rest tools/hub orchestrator instance/lifecycle ownership/peer tools/call instance policy prompt ownership/replica sandbox service sandboxapi/... skills store observe/metrics", "a server on the memory driver: it wires all parts, as cmd does"},
	{"deploy/packages/sbom", "template/sbom", "it writes the lists of a release; what is in them, others know"},
	{"deploy/helm", "driver/kubernetes template", "a chart is text; its tests read it, and compare its rights with those that the driver needs"},
	{"sandbox-templates", "", "files, and nothing else"},
	{"sdk/go", "", "programs of others import it, so it knows the public API and nothing of ours"},
	{"sdk/go/packs", "/sdk/go /sdk/packs/...", "programs of others import it, so it knows the contract, the client, and nothing of ours"},
	{"sdk/go/packs/conformance", "/sdk/go/packs", "the program that sdk/packs/conformance runs knows what a user's program knows"},
	{"sdk/packs/v1", "", "generated"},
	{"sdk/packs/v1/packsv1connect", "/sdk/packs/v1", "generated"},
	{"packs/sql", "/packs/sql/database /packs/sql/postgres /packs/sql/sqlite /packs/sql/table /sdk/go/packs", "a pack is a program of a user: it knows the SDK, and nothing of the server"},
	{"packs/sql/database", "", "what a tool needs of a database"},
	{"packs/sql/pgtest", "", "it starts a PostgreSQL for tests"},
	{"packs/sql/postgres", "/packs/sql/database", "it knows one database, and no tool"},
	{"packs/sql/skerry-pack-sql", "/packs/sql /sdk/go/packs", "flags; the rest is the pack's"},
	{"packs/sql/sqlite", "/packs/sql/database", "it knows one database, and no tool"},
	{"packs/sql/table", "/packs/sql/database", "it knows rows, not where they come from"},
	{"plugins", "", "files, and nothing else"},
	{"skills", "", "files, and nothing else"},
}

// allows reports whether a package with this row may import our package dir.
func (r row) allows(dir string) bool {
	for _, entry := range strings.Fields(r.ours) {
		if own, ok := strings.CutPrefix(entry, "/"); ok {
			entry = own
		} else {
			entry = "internal/" + entry
		}
		if tree, ok := strings.CutSuffix(entry, "/..."); ok && within(dir, tree) || dir == entry {
			return true
		}
	}
	return false
}

func within(dir, parent string) bool { return dir == parent || strings.HasPrefix(dir, parent+"/") }
