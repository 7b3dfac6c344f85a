package export

import (
	"encoding/json"
	"net"
	"net/netip"
	"path"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/platform/buildinfo"
)

// Version is that of the schema that OCSF keeps to.
const Version = "1.8.0"

// class is what an action is an event of: the numbers of OCSF.
type class struct {
	uid  int
	name string
	fill func(*Event, audit.Record)
}

var (
	fileActivity    = class{1001, "File System Activity", fileEvent}
	processActivity = class{1007, "Process Activity", processEvent}
	authentication  = class{3002, "Authentication", authEvent}
	entities        = class{3004, "Entity Management", entityEvent}
	lifecycle       = class{6002, "Application Lifecycle", lifecycleEvent}
	apiActivity     = class{6003, "API Activity", apiEvent}
)

// kind is the class and the activity of an action. 99 is Other: then the action is the activity's name.
type kind struct {
	class    class
	activity int
}

const other = 99

// kinds has a row for each action; docs/audit.md shows them. What is not here is API Activity, Other.
var kinds = map[string]kind{
	audit.ActionExec: {processActivity, 0}, audit.ActionCode: {processActivity, 0}, audit.ActionSkillRun: {processActivity, 0}, // by phase
	audit.ActionSignal: {processActivity, other}, audit.ActionTerminal: {processActivity, 3}, // Open

	audit.ActionFileWrite: {fileActivity, 3}, audit.ActionFileEdit: {fileActivity, 3}, audit.ActionFileDelete: {fileActivity, 4},
	audit.ActionFileMove: {fileActivity, 5}, audit.ActionFileMkdir: {fileActivity, 1}, audit.ActionFileChange: {fileActivity, 3},

	audit.ActionAuthRefused: {authentication, 1}, audit.ActionKeyCreate: {entities, 1}, audit.ActionKeyRevoke: {entities, 4},

	audit.ActionSandboxCreate: {lifecycle, 3}, audit.ActionSandboxPool: {lifecycle, 3}, audit.ActionSandboxRemove: {lifecycle, 4},
	audit.ActionSandboxHibernate: {lifecycle, 4}, audit.ActionSandboxExpire: {lifecycle, 4}, audit.ActionSandboxReap: {lifecycle, 4},
	audit.ActionSandboxResume: {lifecycle, 3}, audit.ActionSandboxPause: {lifecycle, 4}, audit.ActionSandboxClaim: {lifecycle, other},
	audit.ActionSandboxAdopt: {lifecycle, other}, audit.ActionSandboxQueue: {lifecycle, other}, audit.ActionServerDrain: {lifecycle, 4},
	audit.ActionContextOpen: {lifecycle, 3}, audit.ActionContextClose: {lifecycle, 4}, audit.ActionContextRestart: {lifecycle, 5},
	audit.ActionContextInterrupt: {lifecycle, other},
	audit.ActionSkillInstall:     {lifecycle, 1}, audit.ActionSkillDelete: {lifecycle, 2}, audit.ActionSkillWrite: {lifecycle, 8},
	audit.ActionSkillSwitch: {lifecycle, other}, audit.ActionSkillActivate: {lifecycle, other},
	audit.ActionPluginInstall: {lifecycle, 1}, audit.ActionPluginRemove: {lifecycle, 2}, audit.ActionPluginChange: {lifecycle, 8},

	audit.ActionThreadDelete: {apiActivity, 4}, audit.ActionMCPConfig: {apiActivity, 3}, audit.ActionConfigReload: {apiActivity, 3},
	audit.ActionMarketplaceAdd: {apiActivity, 1}, audit.ActionMarketplaceRemove: {apiActivity, 4},
}

// Event is an event of OCSF, with the attributes that we know.
type Event struct {
	ClassUID     int            `json:"class_uid"`
	ClassName    string         `json:"class_name"`
	CategoryUID  int            `json:"category_uid"`
	ActivityID   int            `json:"activity_id"`
	ActivityName string         `json:"activity_name,omitempty"`
	TypeUID      int            `json:"type_uid"`
	Time         int64          `json:"time"` // Unix ms
	Duration     int64          `json:"duration,omitempty"`
	SeverityID   int            `json:"severity_id"`
	StatusID     int            `json:"status_id"`
	StatusCode   string         `json:"status_code,omitempty"`
	StatusDetail string         `json:"status_detail,omitempty"`
	Message      string         `json:"message,omitempty"`
	Metadata     metadata       `json:"metadata"`
	RawHash      *fingerprint   `json:"raw_data_hash,omitempty"` // of the record's line
	Actor        *actor         `json:"actor,omitempty"`
	Source       *endpoint      `json:"src_endpoint,omitempty"`
	Request      *httpRequest   `json:"http_request,omitempty"`
	API          *api           `json:"api,omitempty"`
	Device       *device        `json:"device,omitempty"`
	Process      *process       `json:"process,omitempty"`
	File         *file          `json:"file,omitempty"`
	User         *user          `json:"user,omitempty"`
	Service      *named         `json:"service,omitempty"`
	Entity       *entity        `json:"entity,omitempty"`
	App          *named         `json:"app,omitempty"`
	Unmapped     map[string]any `json:"unmapped,omitempty"` // the rest of the record
}

type named struct {
	UID  string `json:"uid,omitempty"`
	Name string `json:"name,omitempty"`
}

type metadata struct {
	Version     string  `json:"version"`
	Product     product `json:"product"`
	UID         string  `json:"uid,omitempty"`
	Code        string  `json:"event_code"`
	Tenant      string  `json:"tenant_uid,omitempty"`
	Correlation string  `json:"correlation_uid,omitempty"` // the request
	Log         string  `json:"log_name,omitempty"`        // the writer
	Sequence    uint64  `json:"sequence,omitempty"`
}

type product struct {
	Name    string `json:"name"`
	Vendor  string `json:"vendor_name"`
	Version string `json:"version,omitempty"`
}

type fingerprint struct {
	Algorithm int    `json:"algorithm_id"`
	Value     string `json:"value"`
}

type user struct {
	Name       string `json:"name,omitempty"`
	UID        string `json:"uid,omitempty"`
	Credential string `json:"credential_uid,omitempty"`
	Org        *named `json:"org,omitempty"`
}

type actor struct {
	User      *user  `json:"user,omitempty"`
	App       string `json:"app_name,omitempty"`
	InvokedBy string `json:"invoked_by,omitempty"`
}

type endpoint struct {
	IP   string `json:"ip,omitempty"`
	Name string `json:"name,omitempty"`
}

type httpRequest struct {
	UserAgent string `json:"user_agent,omitempty"`
	UID       string `json:"uid,omitempty"`
}

type api struct {
	Operation string `json:"operation"`
	Service   *named `json:"service,omitempty"`
	Request   *named `json:"request,omitempty"`
}

type device struct {
	Type int    `json:"type_id"`
	Kind string `json:"type"`
	Name string `json:"name"`
	UID  string `json:"uid,omitempty"`
}

type process struct {
	UID     string `json:"uid"`
	Command string `json:"cmd_line,omitempty"`
}

type file struct {
	Name string `json:"name"`
	Path string `json:"path,omitempty"`
	Type int    `json:"type_id"`
}

type entity struct {
	named
	Type string `json:"type"`
}

// OCSF returns the event of a record.
func OCSF(r audit.Record) Event {
	k, ok := kinds[r.Action]
	if !ok {
		k = kind{apiActivity, other}
	}
	if k.class.uid == processActivity.uid && k.activity == 0 {
		if k.activity = 2; r.Phase == audit.PhaseAttempt { // Terminate, Launch
			k.activity = 1
		}
	}
	e := Event{
		ClassUID: k.class.uid, ClassName: k.class.name, CategoryUID: k.class.uid / 1000, ActivityID: k.activity, TypeUID: k.class.uid*100 + k.activity,
		Time: r.Time.UnixMilli(), Duration: max(r.Millis, 0), SeverityID: 1, Message: strings.TrimSpace(r.Action + " " + r.Subject), StatusCode: r.Outcome, StatusDetail: r.Detail,
		Metadata: metadata{
			Version: Version, Product: product{"Skerry", "Skerry", buildinfo.Version()}, UID: r.ID, Code: r.Action, Tenant: r.Tenant,
			Correlation: r.RequestID, Log: r.Writer, Sequence: r.Seq,
		},
		Unmapped: rest(r),
	}
	if k.activity == other {
		e.ActivityName = r.Action
	}
	if len(r.Hash) == 64 {
		e.RawHash = &fingerprint{3, r.Hash} // SHA-256
	}
	e.StatusID, e.SeverityID = outcome(r)
	if r.UserAgent != "" || r.RequestID != "" {
		e.Request = &httpRequest{r.UserAgent, r.RequestID}
	}
	k.class.fill(&e, r)
	return e
}

// outcome is the status (1 success, 2 failure, 0 not known yet) and the severity (1 informational, 2 low, 3 medium).
func outcome(r audit.Record) (status, severity int) {
	switch {
	case r.Phase == audit.PhaseAttempt:
		return 0, 1
	case r.Outcome == "denied":
		return 2, 3
	case r.Outcome == "" || r.Outcome == "ok" || r.Outcome == "exited" || r.Outcome == "approved":
		return 1, 1
	}
	return 2, 2
}

// rest are the members that have no attribute.
func rest(r audit.Record) map[string]any {
	all := map[string]any{"phase": r.Phase}
	for name, v := range map[string]string{
		"parent": r.Parent, "thread": r.Thread, "sandbox": r.Sandbox, "exec": r.Exec, "subject": r.Subject, "args_hash": r.ArgsHash, "out_hash": r.OutHash,
		"auth": r.Auth, "role": r.Role, "trace_id": r.TraceID, "prev": r.Prev,
	} {
		if v != "" {
			all[name] = v
		}
	}
	for name, v := range map[string]json.RawMessage{"args": r.Args, "why": r.Why} {
		if len(v) > 0 {
			all[name] = v
		}
	}
	for name, v := range map[string]int64{"bytes_in": r.BytesIn, "bytes_out": r.BytesOut} {
		if v != 0 {
			all[name] = v
		}
	}
	return all
}

func actorOf(r audit.Record) *actor {
	a := &actor{InvokedBy: r.Actor}
	if r.User == "" {
		a.App = "skerry"
		return a
	}
	a.User = userOf(r)
	return a
}

func userOf(r audit.Record) *user {
	u := &user{Name: r.User, UID: r.User, Credential: r.KeyID}
	if r.User == "" {
		u.Name = "unknown"
	}
	if r.Tenant != "" {
		u.Org = &named{UID: r.Tenant}
	}
	return u
}

func sourceOf(r audit.Record) *endpoint {
	host := r.Source
	if h, _, err := net.SplitHostPort(r.Source); err == nil {
		host = h
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return &endpoint{IP: ip.WithZone("").Unmap().String()}
	}
	if host == "" {
		host = "skerry" // the server itself
	}
	return &endpoint{Name: host}
}

// deviceOf is the sandbox.
func deviceOf(r audit.Record) *device {
	d := &device{Type: other, Kind: "Sandbox", Name: r.Thread, UID: r.Sandbox}
	if d.Name == "" {
		d.Name = "sandbox"
	}
	return d
}

func processEvent(e *Event, r audit.Record) {
	e.Request = nil // the class has none
	e.Actor, e.Device, e.Process = actorOf(r), deviceOf(r), &process{UID: r.Exec, Command: r.Subject}
	if r.Exec == "" {
		e.Process.UID = r.ID
	}
}

func fileEvent(e *Event, r audit.Record) {
	e.Request = nil
	e.Actor, e.Device, e.File = actorOf(r), deviceOf(r), &file{Name: path.Base(r.Subject), Path: r.Subject, Type: 1}
	if r.Action == audit.ActionFileMkdir {
		e.File.Type = 2
	}
}

func authEvent(e *Event, r audit.Record) {
	e.Actor, e.Source, e.User, e.Service = actorOf(r), sourceOf(r), userOf(r), &named{Name: "skerry"}
}

func entityEvent(e *Event, r audit.Record) {
	e.Actor, e.Source, e.Entity = actorOf(r), sourceOf(r), &entity{named{UID: r.Subject, Name: r.Subject}, "API key"}
	if r.Subject == "" {
		e.Entity.Name = "API key"
	}
}

func lifecycleEvent(e *Event, r audit.Record) {
	e.Request = nil
	what, _, _ := strings.Cut(r.Action, "_")
	e.App = &named{Name: r.Subject}
	if what == "sandbox" {
		e.App.UID = r.Sandbox
	}
	if r.Subject == "" {
		e.App.Name = what
	}
}

func apiEvent(e *Event, r audit.Record) {
	e.Actor, e.Source = actorOf(r), sourceOf(r)
	e.API = &api{Operation: r.Action}
	if r.RequestID != "" {
		e.API.Request = &named{UID: r.RequestID}
	}
	if r.Action == audit.ActionToolCall {
		e.API.Operation = r.Subject
		if server, _, ok := strings.Cut(r.Subject, "__"); ok {
			e.API.Service = &named{Name: server}
		}
		if e.API.Operation == "" {
			e.API.Operation = r.Action
		}
	}
}
