package serverconfig

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Merge puts the servers of a user behind those of the file. Their programs may reach the hosts of egress.
func Merge(file *Set, list *sandbox.UserServers, egress []string) *Set {
	if list == nil || len(list.List) == 0 {
		return file
	}
	c := &Set{List: slices.Clone(file.List), ByName: map[string]*Server{}}
	printed := map[string]string{}
	for _, s := range file.List {
		c.ByName[s.Name] = s
		if s.IsEnabled() && s.Err == nil {
			printed[sandbox.PrintedServer(s.Name)] = s.Name
		}
	}
	for i := range list.List {
		s := ParseUserServer(&list.List[i], egress)
		if c.ByName[s.Name] != nil {
			continue // the file has a server of that very name
		}
		if first, taken := printed[sandbox.PrintedServer(s.Name)]; taken && s.Err == nil {
			s.Err = sandbox.Errorf(sandbox.Conflict, "its tools would be printed %s__…, as those of the server %q are", sandbox.PrintedServer(s.Name), first)
		} else if s.Err == nil {
			printed[sandbox.PrintedServer(s.Name)] = s.Name
		}
		c.List = append(c.List, s)
		c.ByName[s.Name] = s
	}
	return c
}

// ParseUserServer reads a server of a user. What it says of the host has no effect.
func ParseUserServer(u *sandbox.UserServer, egress []string) *Server {
	s := &Server{Name: u.Name, User: u}
	var compact bytes.Buffer
	if err := json.Compact(&compact, u.Config); err != nil {
		s.Err = sandbox.Errorf(sandbox.Invalid, "not JSON")
		return s
	}
	if err := json.Unmarshal(u.Config, s); err != nil {
		s.Err = describeJSON(u.Config, err)
		return s
	}
	if u.Pack != nil {
		return s.ofPack(compact.Bytes())
	}
	s.RunAs, s.Scope, s.Enabled, s.Sandbox = nil, ScopeUser, nil, Isolation{}
	if s.Type == TransportStdio || s.Type == "" && s.Command != "" {
		s.Sandbox = Isolation{On: true, Egress: egress}
		if u.Root != "" {
			s.Sandbox.Mounts = map[string]string{sandbox.PluginFiles: u.Root}
		}
	}
	if s.Err = s.check(); s.Err == nil {
		s.dial, s.Err = s.dialKey()
	}
	// Values and files are part of what it is: with others it is connected to anew.
	values, err := json.Marshal(u.Values)
	if s.Err == nil && err != nil {
		s.Err = sandbox.Errorf(sandbox.Invalid, "not JSON")
	}
	sum := sha256.Sum256(fmt.Appendf(values, " %q", u.Key))
	s.dial = append(s.dial, sum[:]...)
	s.Raw = append(compact.Bytes(), sum[:]...)
	return s
}

// ofPack completes the configuration of a tool pack. All users who have it share one connection, because the pack itself
// has only one.
func (s *Server) ofPack(raw []byte) *Server {
	s.Type, s.Scope, s.Raw = TransportPack, ScopeTenant, raw
	if s.User.Tenant == "" {
		s.Scope = ScopeShared
	}
	s.dial = fmt.Appendf(nil, "pack %s", s.User.Key)
	s.Err = s.checkTools()
	return s
}

// lookup returns what ${NAME} stands for in the configuration of a server: for one of a user that user's values, and
// never the server's environment.
func (s *Server) lookup(environment func(string) (string, bool)) func(string) (string, bool) {
	if s.User == nil {
		return environment
	}
	values := s.User.Values
	return func(name string) (string, bool) {
		v, ok := values[name]
		return v, ok
	}
}
