package serverconfig

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/platform/jsonedit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/login"
)

// Mask stands for a secret in what is shown, and for the stored secret in what is sent back.
const Mask = "***"

// secretSections are the parts of a server's configuration whose values are not shown; of those with a list
// only its members are secrets.
var secretSections = map[string][]string{"env": nil, foreignEnv: nil, "headers": nil, "oauth": login.Secrets}

// foreignEnv is what other programs call env. A server that has it cannot be used, and is shown nevertheless.
const foreignEnv = "envs"

// isSecret reports whether a member of a section is not shown. The decoder ignores case.
func isSecret(section, key string) bool {
	only := secretSections[section]
	return only == nil || strings.Contains(strings.ToLower(key), "secret") || slices.ContainsFunc(only, func(s string) bool { return strings.EqualFold(s, key) })
}

// Masked returns a configuration as it is shown: without its secrets.
func Masked(raw []byte) json.RawMessage {
	const hidden = `"` + Mask + `"`
	out, err := maskGuessed(raw)
	if err != nil {
		return json.RawMessage(`{}`)
	}
	for name, only := range secretSections {
		for _, m := range sections(raw, name) {
			values, err := m.Members(raw, name)
			switch {
			case err == nil:
				for _, v := range values.All {
					if !isSecret(name, v.Key) {
						continue
					}
					if out, err = jsonedit.Set(out, []string{m.Key}, v.Key, []byte(hidden)); err != nil {
						break
					}
				}
			case only != nil && !bytes.ContainsAny(m.Value(raw), "{[\""):
				err = nil // oauth: false
			default:
				out, err = jsonedit.Set(out, nil, m.Key, []byte(hidden))
			}
			if err != nil {
				return json.RawMessage(`{}`)
			}
		}
	}
	return compacted(out)
}

// sections returns the members of a configuration that are read as name: the decoder ignores case.
func sections(raw []byte, name string) []jsonedit.Member {
	o, err := jsonedit.Members(raw, "")
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(o.All, func(m jsonedit.Member) bool { return !strings.EqualFold(m.Key, name) })
}

func compacted(raw []byte) json.RawMessage {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return json.RawMessage(`{}`)
	}
	return b.Bytes()
}

// Unmasked puts the stored secrets in place of the masks.
func Unmasked(raw json.RawMessage, stored *Server) ([]byte, error) {
	if _, err := jsonedit.Members(raw, ""); err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "the configuration of a server is a JSON object: %s", err)
	}
	out, err := unmaskGuessed(raw, stored)
	if err != nil {
		return nil, err
	}
	for name, only := range secretSections {
		for _, section := range sections(raw, name) {
			values, err := section.Members(raw, name)
			if err != nil && only != nil {
				continue // oauth: false, or what the configuration's check refuses
			}
			if err != nil {
				return nil, InvalidField(name, "is not an object, or has a name twice")
			}
			for _, m := range values.All {
				if !isSecret(name, m.Key) || string(m.Value(raw)) != `"`+Mask+`"` {
					continue
				}
				kept, ok := storedValue(stored, name, m.Key)
				if !ok {
					return nil, InvalidField(name+"."+m.Key, "is %q, but no value is stored that it could stand for", Mask)
				}
				if out, err = jsonedit.Set(out, []string{section.Key}, m.Key, kept); err != nil {
					return nil, sandbox.Wrap(sandbox.Invalid, err, "the configuration cannot be read")
				}
			}
		}
	}
	return out, nil
}

func storedValue(stored *Server, name, key string) ([]byte, bool) {
	if stored == nil {
		return nil, false
	}
	for _, section := range sections(stored.Raw, name) {
		if values, err := section.Members(stored.Raw, name); err == nil {
			if m, ok := values.Find(key); ok {
				return m.Value(stored.Raw), true
			}
		}
	}
	return nil, false
}
