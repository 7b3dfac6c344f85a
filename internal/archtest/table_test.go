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
const driverOurs = "sandbox driver driver/hardening driver/idlock driver/runtimeprobe"

// table has a row for every package but those of cmd/, which wire all parts: a package without one
// is a violation. Tests may import what they like.
var table = []row{
	{"internal/sandbox", "", "the vocabulary imports nothing of ours"},

	{"internal/archtest", "", "it reads text"},
	{"internal/buildinfo", "", "it stands below everything"},
	{"internal/config", "", "it stands below everything"},
	{"internal/deadline", "", "it knows a clock, not what it is for"},
	{"internal/diskquota", "lockedfile rename", "it knows folders and the kernel, no thread"},
	{"internal/doctor", "driver/cgroup", "it looks at the machine; what the server's parts are like comes in as checks"},
	{"internal/vpath", "sandbox rename", "files stand below the use cases"},
	{"internal/editdistance", "", "it compares two words"},
	{"internal/sbom", "", "a list of parts is text, whatever printed it"},
	{"internal/template", "sandbox editdistance /sandbox-templates", "templates are text and a vocabulary"},
	{"skills", "", "files, and nothing else"},
	{"sandbox-templates", "", "files, and nothing else"},
	{"internal/skill", "sandbox lockedfile rename", "skills are files and a vocabulary; who switches them on comes in as a function"},
	{"internal/skill/archive", "sandbox", "an archive is bytes and names, whatever is in it"},
	{"internal/plugin", "sandbox skill skill/archive plugin/gitfetch extensions lockedfile egress audit skill/scan jsonedit", "plugins are files, and skills among them; who serves them comes in as functions"},
	{"internal/plugin/gitfetch", "sandbox", "it reads commits, whatever is in them"},
	{"internal/jsonedit", "", "text, and nothing else"},
	{"internal/tlsfiles", "", "it stands below everything"},
	{"internal/lockedfile", "", "it stands below everything"},
	{"internal/extensions", "sandbox jsonedit lockedfile", "what is switched on is text in files; what a switch means, others know"},
	{"internal/skill/install", "sandbox audit skill skill/archive skill/lint skill/scan", "a use case: it puts what a user sends through all checks, into a library that it declares"},
	{"internal/skill/lint", "sandbox skill skill/archive skill/scan", "it puts all checks of a skill together"},
	{"internal/skill/s3", "sandbox egress", "it reads and stores objects, whatever is in them"},
	{"internal/skill/s3/s3test", "", "it starts a server for tests"},
	{"internal/skill/scan", "sandbox", "a scan reads text and knows no skill"},
	{"internal/skill/source", "sandbox skill skill/archive", "sources become archives; who installs them is another's business"},
	{"internal/skill/runnable", "sandbox skill", "what a skill needs is in its files; it probes through an interface that it declares"},
	{"internal/prompt", "sandbox skill", "prompts are made from skills and tool sets"},
	{"internal/codeapi", "sandbox rename", "wrappers are made from a tool set alone"},
	{"internal/codeapi/standalone", "sandbox codeapi", "a tree for outside is the tree for sandboxes with other helpers"},
	{"internal/redact", "sandbox", "it knows texts, not where they go"},
	{"internal/argform", "", "a form knows schemas, not who calls tools"},

	{"internal/snapshot", "lockedfile sandbox skill/s3", "it keeps files of threads; who runs them, others know"},

	{"internal/store", "lockedfile sandbox store/groupcommit", "state stands below the use cases"},
	{"internal/store/groupcommit", "", "it knows files, not what is in them"},
	{"internal/store/redistest", "", "it starts a Redis for tests"},
	{"internal/audit", "lockedfile sandbox store store/groupcommit", "the log stands below the use cases"},
	{"internal/audit/archive", "lockedfile sandbox skill/s3", "it stores objects, whatever is in them"},
	{"internal/keyfile", "", "it looks at places, not at keys"},
	{"internal/audit/signing", "audit keyfile lockedfile", "keys and who is believed; the log itself knows only signatures"},
	{"internal/webhook", "", "it signs bytes, whatever they say"},
	{"internal/audit/sink", "audit egress sandbox webhook", "a sink knows records and addresses"},
	{"internal/audit/export", "audit buildinfo sandbox", "a format knows records, not where they come from"},
	{"internal/auth", "sandbox store", "keys are records"},
	{"internal/auth/oidc", "sandbox", "a token says all there is to know"},
	{"internal/approval", "sandbox audit store deadline webhook", "it asks people about calls, and makes none"},
	{"internal/tooldrift", "sandbox store audit", "it remembers what servers say, not how they are reached"},
	{"internal/mcphub/toolscan", "sandbox", "a scan reads text and knows no server"},
	{"internal/secrets", "sandbox store keyfile lockedfile", "values by name stand below the use cases; who gets them, others know"},
	{"internal/telemetry", "sandbox", "it counts and times; what it counts comes in"},
	{"internal/tracing", "sandbox", "spans have names; what they stand for, others know"},
	{"internal/limits", "sandbox store", "limits are counted in the state; what takes them, others know"},
	{"internal/capacity", "sandbox", "it gives out places and knows nothing of what takes them"},

	{"internal/toolsearch", "sandbox", "a search knows a tool set, not where it comes from"},
	{"internal/mcphub", "sandbox redact editdistance toolsearch extensions jsonedit lockedfile egress mcphub/... tracing", "the hub knows tools, not who calls them"},
	{"internal/mcphub/login", "sandbox", "a login knows a server's address, not what is said to it"},
	{"internal/egress", "sandbox", "the way out knows hosts, not who asks"},
	{"internal/toolserver", "sandbox driver egress ownedsocket", "it starts sandboxes by their contract"},
	{"internal/policy", "sandbox editdistance lockedfile", "a policy knows requests and tools; the hub and those who approve come in as interfaces"},
	{"internal/bridge", "sandbox ownedsocket policy redact deadline tracing", "the bridge reaches tools through the policy's guard, as the interface that it declares"},

	{"internal/sandboxapi", "", "the contract with sandboxd stands alone"},
	{"internal/sandboxapi/v1", "", "generated"},
	{"internal/sandboxapi/v1/sandboxv1connect", "sandboxapi/v1", "generated"},
	{"internal/ownedsocket", "", "it stands below everything"},
	{"internal/rename", "", "it knows names, not what they are of"},
	{"internal/rename/refused", "", "it filters system calls for tests"},
	{"internal/confine", "", "it knows the kernel, not what it confines"},
	{"internal/anchor", "", "it makes connections and knows nothing of what is said on them"},
	{"internal/claim", "sandbox lockedfile", "who holds a thread is text in files"},
	{"internal/replica", "ownedsocket", "it knows processes of one data folder, not what they do"},
	{"internal/peer", "sandbox replica", "servers ask each other by socket; what a request means, others know"},
	{"internal/sandboxapi/link", "ownedsocket", "the connection knows no messages"},
	{"internal/sandboxapi/client", "sandbox sandboxapi/...", "checked calls of the contract"},

	{"internal/sandboxd", "sandbox buildinfo sandboxapi/... sandboxd/...", "the daemon in the sandbox stays small and knows no server"},
	{"internal/sandboxd/process", "deadline", "processes know no protocol"},
	{"internal/sandboxd/files", "", "files know no protocol"},
	{"internal/sandboxd/interp", "sandboxd/process", "interpreters are processes"},

	{"internal/docblock", "", "documents are text; what is in their blocks, the tests know that use them"},

	{"internal/driver", "sandbox", "a contract imports the vocabulary"},
	{"internal/driver/hardening", "sandbox", "what drivers have in common knows no driver"},
	{"internal/driver/cgroup", "", "it knows files of the kernel, no sandbox"},
	{"internal/driver/ociconfig", "sandbox driver/hardening driver/cgroup", "what drivers have in common knows no driver"},
	{"internal/driver/idlock", "sandbox", "what drivers have in common knows no driver"},
	{"internal/driver/events", "driver", "what drivers have in common knows no driver"},
	{"internal/driver/procid", "", "it knows processes, not what they make"},
	{"internal/driver/runtimeprobe", "sandbox driver/procid", "what drivers have in common knows no driver"},
	{"internal/driver/oci", driverOurs + " driver/cgroup driver/ociconfig driver/procid", "a driver knows its contract, never another driver"},
	{"internal/driver/containerd", driverOurs + " driver/cgroup driver/ociconfig", "a driver knows its contract, never another driver"},
	{"internal/driver/containerd/containerdtest", "", "it starts a containerd for tests"},
	{"internal/driver/docker/dockertest", "driver/containerd/containerdtest", "it starts an engine for tests, with a containerd of its own"},
	{"internal/driver/docker", driverOurs + " driver/cgroup", "a driver knows its contract, never another driver"},
	{"internal/driver/kubernetes", "sandbox driver driver/hardening driver/idlock anchor buildinfo confine sidecar sidecar/pki", "a driver knows its contract and its tunnel, never another driver"},
	{"internal/driver/memory", driverOurs + " sandboxapi/link", "a driver knows its contract, never another driver; this one plays sandboxd, too"},
	{"internal/driver/drivertest", "sandbox driver driver/hardening driver/drivertest/...", "the suite knows the contract, no driver"},
	{"internal/driver/drivertest/probe", "confine driver/runtimeprobe driver/drivertest/probewire", "the suite's program in the sandbox"},
	{"internal/driver/kubernetes", "sandbox driver driver/events driver/hardening driver/idlock anchor buildinfo confine sidecar sidecar/pki", "a driver knows its contract and its tunnel, never another driver"},
	{"internal/driver/memory", driverOurs + " driver/events sandboxapi/link", "a driver knows its contract, never another driver; this one plays sandboxd, too"},
	{"internal/driver/drivertest", "sandbox anchor driver driver/hardening driver/drivertest/...", "the suite knows the contract, no driver"},
	{"internal/driver/drivertest/probe", "sandbox anchor confine driver/runtimeprobe driver/drivertest/probewire", "the suite's program in the sandbox"},
	{"internal/driver/drivertest/probewire", "sandbox", "what the suite and its program say to each other"},

	{"internal/sidecar", "sandbox sidecar/...", "the server's end of a tunnel knows files and sockets, no pod and no thread"},
	{"internal/sidecar/pki", "sandbox lockedfile", "certificates know names, not what is said"},
	{"internal/sidecar/pod", "sandbox anchor lockedfile ownedsocket sidecar/tree sidecar/wire", "the sandbox's end of a tunnel knows no server"},
	{"internal/sidecar/tree", "", "trees of files are changed by whoever asks"},
	{"internal/sidecar/wire", "sandbox sidecar/tree", "messages know what is said, not who says it"},

	{"internal/orchestrator", "sandbox driver sandboxapi/... vpath snapshot diskquota store audit bridge policy codeapi skill prompt redact toolsearch capacity limits telemetry claim lockedfile deadline tracing", "use cases know contracts, never what starts containers, speaks MCP or speaks HTTP"},
	{"internal/httpserver", "sandbox auth audit prompt secrets vpath tracing policy audit/export", "HTTP reaches the use cases through interfaces that it declares"},
	{"internal/e2b", "sandbox audit vpath httpserver e2b/...", "an adapter translates to use cases, by interfaces that it declares; its routes are served as all others"},
	{"internal/e2b/envd/process", "", "generated"},
	{"internal/e2b/envd/process/processconnect", "e2b/envd/process", "generated"},
	{"internal/e2b/envd/filesystem", "", "generated"},
	{"internal/e2b/envd/filesystem/filesystemconnect", "e2b/envd/filesystem", "generated"},

	{"internal/deerflow", "sandbox auth vpath", "it translates to the public API, whose handler comes in; keys of addresses through an interface that it declares"},

	{"sdk/go", "", "programs of others import it, so it knows the public API and nothing of ours"},

	{"internal/attack", "", "a table of attacks; its tests use the product as it is"},
	{"internal/attack/wire", "", "what the attacks and their program say to each other"},
	{"internal/attack/probe", "attack/wire sandboxd/process", "the attacker in the sandbox"},
	{"internal/attack/bomb", "", "programs, and nothing else"},
	{"internal/attack/onserver", "", "a server is attacked by its public API and from its sandboxes"},

	{"deploy/helm", "driver/kubernetes template", "a chart is text; its tests read it, and compare its rights with those that the driver needs"},
	{"docs/site", "", "documents are text; it makes pages of them"},
	{"internal/e2e", "", "the whole is tested through its public API"},
	{"bench/chaos", "audit driver/containerd/containerdtest driver/docker/dockertest", "the whole is harmed from outside; what it recorded is read by who wrote it"},
	{"bench/fleet", "audit bridge codeapi driver/memory extensions httpserver mcphub orchestrator peer policy prompt replica sandbox sandboxapi/... skill store telemetry", "a server on the memory driver: it wires all parts, as cmd does"},
	{"bench", "attack/bomb audit auth policy sandbox store driver/containerd/containerdtest /sandbox-templates", "the whole is measured through its public API; what rights and records cost, by who judges and writes them"},
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
