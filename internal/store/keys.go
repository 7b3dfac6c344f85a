package store

import "github.com/skerry-sandbox/skerry/internal/sandbox"

// Every Redis key of Skerry, in one place. The braces are a hash tag: keys with the same text in
// braces lie in one slot of a Redis cluster, so that one script may touch them together. A tenant's
// keys share the tag {tenant}; what belongs to no tenant has a tag with a colon, which no tenant's
// name can have. Names hold no colon (sandbox.CheckOwnerName), so the parts of a key are unambiguous.
//
// "Durable" keys are journalled in embedded mode and survive a restart. In a Redis of its own they
// live as long as that Redis keeps its data (appendonly yes is advised). All times are UTC.
//
//	key                                      type    TTL      holds; rebuilt from
//	skerry:{T}:threads:U                     hash    -        durable. thread id -> JSON of sandbox.ThreadInfo; the workspace folders (labels are lost)
//	skerry:{T}:threads:U:index               zset    -        durable. thread ids, score 0, for paging by name; with the hash above
//	skerry:{T}:active:U                      zset    -        thread ids, score the last activity in Unix ms; the LastActiveAt of the thread's record
//	skerry:{T}:active                        zset    -        U:THREAD, the same of all threads of the tenant; likewise
//	skerry:{T}:active:                       string  -        1: both have the threads that were there before servers kept them; the next list
//	skerry:{T}:thread-usage:U                hash    -        durable. thread id -> JSON of execs, exec_ms, disk_bytes, measured_at, and the last writer and batch; nothing: it begins anew
//	skerry:{T}:disk:U                        zset    -        ids of threads that were measured, score the bytes of their files; the hash above
//	skerry:{T}:disk                          zset    -        U:THREAD, the same of all threads of the tenant; likewise
//	skerry:{T}:sandbox:U:THREAD              hash    -        id, record (JSON of SandboxRecord); the labels of the driver
//	skerry:{T}:lease:U:THREAD                hash    lease    owner, token, state (own, deleting); taken again by the server that runs the sandbox
//	skerry:{T}:fence                         string  -        last fencing token; the clock (tokens are at least its microseconds)
//	skerry:{T}:keys                          hash    -        durable. key id -> JSON of KeyRecord; nothing: keys must be made anew
//	skerry:{T}:keys:used                     hash    -        durable. key id -> Unix seconds of its last use, written late; nothing
//	skerry:keys                              channel -        ids of keys that were made or revoked
//	skerry:{:keys}                           hash    -        durable. sha256 of a secret -> JSON of KeyRecord; skerry:{T}:keys
//	skerry:{T}:secrets                       hash    -        durable. SCOPE/name -> JSON of SecretRecord, encrypted; nothing: they must be set anew
//	skerry:{T}:secrets:used                  hash    -        durable. SCOPE/name -> Unix seconds of its last use, written late; nothing
//	skerry:{:secrets}                        hash    -        durable. tenants that have secrets -> true; nothing: a rotation of the key would miss them
//	skerry:{:secrets}:version                string  -        counts changes of secrets, for the other servers; nothing: it begins anew
//	skerry:{:pins}                           hash    -        durable. id of an MCP server -> JSON of PinnedServer; nothing: it is seen for the first time
//	skerry:{:pins}:ID                        hash    -        durable. tool -> JSON of ToolPin; likewise
//	skerry:{:format}                         string  -        the version of all these keys; the one of the server that starts next
//	skerry:{:pack-keys}                      hash    -        durable. fingerprint -> JSON of PackKeyRecord; the file authorized_packs goes on
//	skerry:{:packs}                          hash    10 min   ID:TENANT -> JSON of PackStream, the streams of tool packs; each server says its own anew
//	skerry:{:packs}:of:REPLICA               hash    10 min   the same of skills of the threads of one server; likewise
//	skerry:{:packs}:version                  string  10 min   counts their changes, as does …:of:REPLICA:version; all is read anew
//	skerry:{:packs}:leases                   hash    10 min   replica -> Redis' time in ms at which it last said that it lives; each server says it anew
//	skerry:{:packs}:epoch                    string  10 min   a random text, which tells servers that Redis lost these keys; the next reader
//	skerry:{:uid}                            hash    -        durable. last -> the last host uid given; the owners of the workspace folders
//	skerry:{:pool}:TEMPLATE                  hash    seconds  replica -> "count time", the sandboxes that wait on it; each server says it anew every second
//	skerry:{T}:idem:U:SHA256                 hash    130 min, claim, fp (fingerprint), state (running, done, large), answer; nothing:
//	                                                 24 h     a retry after its loss runs the request again
//	skerry:{T}:idem-kept:U                   zset    24 h     USER:SHA256:BYTES of a user's answers that are remembered -> Redis' time in ms; nothing: they are not bounded
//	skerry:{T}:idem-kept:U:bytes             string  24 h     the sum of these bytes; nothing: they are not bounded
//	skerry:{T}:idem-kept:U:facts             zset    24 h     USER:SHA256 of those whose answer was let go of; nothing: they are not bounded
//	skerry:{T}:idem-all                      zset    24 h     as idem-kept, of all users of the tenant; so are the next two
//	skerry:{T}:idem-all:bytes                string  24 h     the sum of these bytes; nothing: they are not bounded
//	skerry:{T}:idem-all:facts                zset    24 h     USER:SHA256; nothing: they are not bounded
//	skerry:{T}:idem-since:U                  string  24 h     as idem-since, of one user, the oldest of whose facts had to go
//	skerry:{T}:idem-since                    string  -        Redis' time in ms since which the answers of the tenant are remembered; now: an older retry is refused
//	skerry:{T}:rate:LIMIT:SCOPE              string  seconds  Redis' time in ms at which the bucket is full again; a full bucket
//	skerry:{:rates}:LIMIT:SCOPE              string  seconds  the same of calls, whose rates are looked at in one script; a full bucket
//	skerry:{T}:held:LIMIT:SCOPE              zset    seconds  "ID UNTIL" -> time in ms at which the place is free if no server holds on to it; each server says it anew every 10 s
//	skerry:{T}:usage:DAY                     hash    92 days  durable. "SCOPE|COUNTER" -> amount, ~SERVER -> its last batch; nothing: the counts of the day begin anew
//	skerry:{T}:cpu:SANDBOX                   string  1 h      ms of CPU time that were counted of it; what its server knows
//	skerry:{T}:approvals                     hash    -        durable. id -> JSON of ApprovalRecord, the newest 2000; nothing: calls ask again
//	skerry:{T}:approvals:index               zset    -        durable. ids, score 0, for paging by time; with the hash above
//	skerry:{T}:approvals:open                zset    -        U:THREAD:id of those of which something may become; the hash above
//	skerry:{T}:grants:U:THREAD               hash    -        durable. sha256 of a call's name -> JSON of Grant, what a thread may do for good; nothing
//	skerry:approvals                         channel -        ids of requests for approval that changed
//	skerry:files                             channel -        changes of files that a server tells to the thread's owner
//	skerry:{T}:audit                         stream  kept     field r = one audit record (JSON as on disk); the audit log on disk
//	skerry:{T}:audit:cursor                  hash    -        id = last id of the stream, WRITER = last Seq of that writer in the stream, bytes = of the
//	                                                          records, late = by how many ms an id was later than its record at most; with the stream
//	skerry:{T}:audit:FIELD:HASH              list    kept     the records with one value of a field, as internal/audit says; with the stream
//	skerry:{:audit-tenants}                  set     -        tenants that have a stream; each server says it anew
//	skerry:{:audit-writer:WRITER}            string  -        Seq up to which all records of the writer are shipped; zero: the cursors above skip what is there
//	skerry:{:audit-writer:WRITER}:head       string  -        the head of the writer's log as it was shipped, writer:seq:hash; the next batch
//
// A SCOPE is whose limit it is: t (the tenant), u:USER or k:KEY.
//
// The audit records that name no tenant (a refused credential) have T = ":none".

func threadsKey(o sandbox.Owner) string { return "skerry:{" + o.Tenant + "}:threads:" + o.User }

func threadIndexKey(o sandbox.Owner) string { return threadsKey(o) + ":index" }

func activeKey(o sandbox.Owner) string { return tenantActiveKey(o.Tenant) + ":" + o.User }

func tenantActiveKey(tenant string) string { return "skerry:{" + tenant + "}:active" }

// activeBuiltKey is that of a user without a name, which nobody has.
func activeBuiltKey(tenant string) string { return tenantActiveKey(tenant) + ":" }

// threadUsageInfix stands between a tenant and a user.
const threadUsageInfix = "}:thread-usage:"

func threadUsageKey(o sandbox.Owner) string { return "skerry:{" + o.Tenant + threadUsageInfix + o.User }

func diskKey(o sandbox.Owner) string { return tenantDiskKey(o.Tenant) + ":" + o.User }

func tenantDiskKey(tenant string) string { return "skerry:{" + tenant + "}:disk" }

func sandboxKey(t sandbox.Thread) string {
	return "skerry:{" + t.Tenant + "}:sandbox:" + t.User + ":" + t.ID
}

func leaseKey(t sandbox.Thread) string {
	return "skerry:{" + t.Tenant + "}:lease:" + t.User + ":" + t.ID
}

func fenceKey(tenant string) string { return "skerry:{" + tenant + "}:fence" }

func tenantKeysKey(tenant string) string { return "skerry:{" + tenant + "}:keys" }

func tenantSecretsKey(tenant string) string { return "skerry:{" + tenant + "}:secrets" }

func secretUsesKey(tenant string) string { return tenantSecretsKey(tenant) + ":used" }

const (
	pinnedServersKey = "skerry:{:pins}"
	packKeysKey      = "skerry:{:pack-keys}"
)

const (
	packStreamsKey = "skerry:{:packs}"
	packLeasesKey  = packStreamsKey + ":leases"
	packEpochKey   = packStreamsKey + ":epoch"
	versionSuffix  = ":version" // of the key that counts changes of streams
)

func skillStreamsKey(replica string) string { return packStreamsKey + ":of:" + replica }

func toolPinsKey(p PinnedServer) string { return pinnedServersKey + ":" + p.id() }

const (
	secretTenantsKey = "skerry:{:secrets}"
	secretVersionKey = "skerry:{:secrets}:version"
)

func keyUsesKey(tenant string) string { return tenantKeysKey(tenant) + ":used" }

const (
	keyHashesKey = "skerry:{:keys}"
	keysChannel  = "skerry:keys"
	uidKey       = "skerry:{:uid}"
	uidField     = "last"
)

func poolKey(template string) string { return "skerry:{:pool}:" + template }

func idempotencyKey(o sandbox.Owner, hash string) string {
	return idempotencyPrefix(o.Tenant) + o.User + ":" + hash
}

// idempotencyPrefix is followed by USER:HASH.
func idempotencyPrefix(tenant string) string { return "skerry:{" + tenant + "}:idem:" }

// ownerAnswersKey has the answers that are remembered of a user's requests, the oldest first; ownerSinceKey says since
// when all are there.
func ownerAnswersKey(o sandbox.Owner) string {
	return "skerry:{" + o.Tenant + "}:idem-kept:" + o.User
}

func ownerSinceKey(o sandbox.Owner) string {
	return "skerry:{" + o.Tenant + "}:idem-since:" + o.User
}

func tenantAnswersKey(tenant string) string { return "skerry:{" + tenant + "}:idem-all" }

// idempotencySinceKey says since when the answers of a tenant's requests are remembered.
func idempotencySinceKey(tenant string) string { return "skerry:{" + tenant + "}:idem-since" }

func rateKey(tenant, limit, scope string) string {
	return "skerry:{" + tenant + "}:rate:" + limit + ":" + scope
}

// sharedRateKey has one tag for all: a call's rates are looked at in one script.
func sharedRateKey(limit, scope string) string { return "skerry:{:rates}:" + limit + ":" + scope }

func heldKey(tenant, limit, scope string) string {
	return "skerry:{" + tenant + "}:held:" + limit + ":" + scope
}

func usageKey(tenant, day string) string { return "skerry:{" + tenant + "}:usage:" + day }

func cpuMarkKey(tenant string, id sandbox.ID) string {
	return "skerry:{" + tenant + "}:cpu:" + string(id)
}

const (
	approvalsSuffix = "}:approvals"
	approvalChannel = "skerry:approvals"
	filesChannel    = "skerry:files"
)

func approvalsKey(tenant string) string { return "skerry:{" + tenant + approvalsSuffix }

func openApprovalsKey(tenant string) string { return approvalsKey(tenant) + ":open" }

func grantsKey(t sandbox.Thread) string {
	return "skerry:{" + t.Tenant + "}:grants:" + t.User + ":" + t.ID
}

// AuditStreamKey is the stream of a tenant's audit records. "" stands for records without a tenant.
func AuditStreamKey(tenant string) string {
	if tenant == "" {
		tenant = ":none"
	}
	return "skerry:{" + tenant + "}:audit"
}

// AuditCursorKey lies in the slot of AuditStreamKey and says what the stream has.
func AuditCursorKey(tenant string) string { return AuditStreamKey(tenant) + ":cursor" }

// AuditHeadKey is the head of a writer's log as it was shipped: writer:seq:hash.
func AuditHeadKey(writer string) string { return AuditWriterKey(writer) + ":head" }

// AuditWriterKey says how far a writer's records are shipped, over all tenants.
func AuditWriterKey(writer string) string { return "skerry:{:audit-writer:" + writer + "}" }

// AuditIndexKey is a list of the records that have a value of a field; hash stands for the value.
func AuditIndexKey(tenant, field, hash string) string {
	return AuditStreamKey(tenant) + ":" + field + ":" + hash
}

// AuditTenantsKey is the set of the tenants that have a stream.
const AuditTenantsKey = "skerry:{:audit-tenants}"
