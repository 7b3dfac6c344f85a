package serverconfig

import (
	"bytes"
	"encoding/json"
	"path"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/platform/networks"
)

// Isolation is the value of "sandbox": true, or an object.
type Isolation struct {
	On        bool              `json:"-"`
	Egress    []string          `json:"egress"`    // hosts; none when absent
	Addresses []string          `json:"addresses"` // networks where these hosts may be, besides the public internet
	Mounts    map[string]string `json:"mounts"`    // path inside, below /srv/ -> folder of the host, read-only
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *Isolation) UnmarshalJSON(text []byte) error {
	switch string(text) {
	case "true":
		*c = Isolation{On: true}
		return nil
	case "false", "null":
		*c = Isolation{}
		return nil
	}
	type plain Isolation
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields() // a misspelt "egress" must not go unseen
	var p plain
	if err := d.Decode(&p); err != nil {
		return InvalidField("sandbox", `want true, or an object with "egress" (a list of hosts), "addresses" (a list of networks) and "mounts" (path inside: folder); %s`, strings.TrimPrefix(err.Error(), "json: "))
	}
	*c = Isolation(p)
	c.On = true
	return nil
}

const maxIsolatedMounts = 16

// checkIsolation looks at what can be known without the sandbox.
func (s *Server) checkIsolation() error {
	if !s.Sandbox.On {
		return nil
	}
	if s.RunAs != nil {
		return InvalidField("run_as", "has no meaning with sandbox: there it gets a uid of its own")
	}
	if _, err := networks.Parse(s.Sandbox.Addresses); err != nil {
		return InvalidField("sandbox.addresses", "%s", err)
	}
	if len(s.Sandbox.Mounts) > maxIsolatedMounts {
		return InvalidField("sandbox.mounts", "%d, at most %d", len(s.Sandbox.Mounts), maxIsolatedMounts)
	}
	for inside, host := range s.Sandbox.Mounts {
		rest, below := strings.CutPrefix(inside, "/srv/")
		if !below || path.Clean(inside) != inside || rest == "home" || strings.HasPrefix(rest, "home/") {
			return InvalidField("sandbox.mounts", "%.200q: want a clean path below /srv/, and not /srv/home", inside)
		}
		if !path.IsAbs(host) {
			return InvalidField("sandbox.mounts", "%.200q: want an absolute folder of the host", host)
		}
	}
	return nil
}
