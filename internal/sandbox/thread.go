package sandbox

import (
	"regexp"
	"strings"
	"time"
)

// Owner is who a thread belongs to. It comes from the credential, never from a request body.
type Owner struct {
	Tenant string `json:"tenant"`
	User   string `json:"user"`
}

// Thread names one agent conversation. The name counts within its owner: two users may both have a
// thread "main". Thread is comparable and serves as a map key.
type Thread struct {
	Owner
	ID string `json:"thread_id"`
}

func (t Thread) String() string { return t.Tenant + "/" + t.User + "/" + t.ID }

var namePattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

// CheckThreadID reports why id cannot name a thread, as an Invalid error.
func CheckThreadID(id string) error {
	if !namePattern.MatchString(id) {
		return Errorf(Invalid, "thread id %.140q: use 1 to 128 of the characters A-Z a-z 0-9 _ -", id)
	}
	return nil
}

var ownerPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.@-]{0,127}$`)

// CheckOwnerName reports why name cannot name a tenant or a user (what says which), as an Invalid
// error. Names are part of host paths and of Redis keys, hence the short list of characters.
func CheckOwnerName(what, name string) error {
	if !ownerPattern.MatchString(name) {
		return Errorf(Invalid, "%s %.140q: use 1 to 128 of the characters A-Z a-z 0-9 _ . @ -, beginning with a letter or digit", what, name)
	}
	return nil
}

// CheckLabels bounds what is remembered of a thread.
func CheckLabels(labels map[string]string) error {
	if len(labels) > 64 {
		return Errorf(Invalid, "labels: at most 64")
	}
	for k, v := range labels {
		if k == "" || len(k) > 128 || len(v) > 1024 || strings.ContainsAny(k, "=\x00") {
			return Errorf(Invalid, "labels: %.140q: a name has 1 to 128 bytes without \"=\", a value at most 1024", k)
		}
	}
	return nil
}

// ThreadInfo is what is remembered of a thread.
type ThreadInfo struct {
	Thread
	Labels       map[string]string `json:"labels"`
	Mode         string            `json:"mode,omitempty"`        // asked for: ModeDirect, ModeCode or ModeAuto; "" = none
	Skills       []string          `json:"skills,omitzero"`       // the only ones that it has; nil = all that are on
	Capabilities []string          `json:"capabilities,omitzero"` // the only ones that count in it; nil = all that a caller has
	// ActiveTools are the printed names of tools that its agent activated, oldest first; at most MaxActiveTools.
	ActiveTools []string `json:"active_tools,omitempty" doc:"Tools that a full search showed, or that were activated by name, oldest first"`
	// Channels are those of the thread's skills, by name. No view shows them.
	Channels     map[string]SkillChannel `json:"channels,omitempty" hidden:"true"`
	CreatedAt    time.Time               `json:"created_at"`
	LastActiveAt time.Time               `json:"last_active_at"`
}
