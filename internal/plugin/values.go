package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/extensions"
	"github.com/skerry-sandbox/skerry/internal/jsonedit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// hiddenValue stands for a sensitive value in what is shown, and for the stored one in what is sent back.
const hiddenValue = "***"

const (
	valuesSection = "values" // of a user's file: {"NAME": "text"}, for ${NAME}
	configMember  = "config" // of a plugin in it: {"KEY": value}, for ${user_config.KEY}
)

// userValues is what a user has given: never the server's environment.
type userValues struct {
	named map[string]string         // for ${NAME}
	of    map[string]map[string]any // by plugin, for ${user_config.KEY}
}

// userValues reads the user's own file beside extensions_config.json.
func (s *Service) userValues(o sandbox.Owner) (userValues, error) {
	v := userValues{named: map[string]string{}, of: map[string]map[string]any{}}
	raw, err := s.o.Extensions.Raw(o, valuesSection)
	if err != nil {
		return v, err
	}
	if named, err := object(raw); err == nil {
		for k, value := range named {
			var text string
			if json.Unmarshal(value, &text) == nil && len(text) <= maxValue {
				v.named[k] = text
			}
		}
	}
	if raw, err = s.o.Extensions.Raw(o, extensions.PluginsSection); err != nil {
		return v, err
	}
	plugins, _ := object(raw) // the reader of the file has looked at it
	for name, value := range plugins {
		member, err := object(value)
		if err != nil {
			continue // a plain true or false
		}
		var config map[string]any
		if json.Unmarshal(member[configMember], &config) == nil {
			v.of[name] = config
		}
	}
	return v, nil
}

// checkValues looks at values that a user sends for the options of a plugin.
func checkValues(p *Plugin, values map[string]any) error {
	e := &sandbox.Error{Kind: sandbox.Invalid, Detail: "a value is not one that the plugin asks for"}
	bad := func(key, format string, args ...any) {
		e.Fields = append(e.Fields, sandbox.Field{Name: "config." + key, Detail: fmt.Sprintf(format, args...)})
	}
	for _, key := range sorted(values) {
		i := slices.IndexFunc(p.Options, func(o sandbox.PluginOption) bool { return o.Key == key })
		switch value := values[key]; {
		case i < 0:
			bad(key, "the plugin asks for no such value")
		case value == nil || value == hiddenValue: // remove it, keep it
		case !fits(p.Options[i].Type, value):
			bad(key, "want a %s of at most %d bytes", p.Options[i].Type, maxValue)
		case strings.ContainsRune(fmt.Sprint(value), 0):
			bad(key, "has a NUL character")
		}
	}
	if len(e.Fields) > 0 {
		return e
	}
	return nil
}

// setValues stores values of a user: nil removes one, "***" keeps what is stored.
func (s *Service) setValues(ctx context.Context, o sandbox.Owner, name string, values map[string]any) error {
	return s.o.Extensions.Edit(ctx, o, func(text []byte) ([]byte, error) {
		path := []string{extensions.PluginsSection, name, configMember}
		for _, key := range sorted(values) {
			var err error
			switch value := values[key]; value {
			case hiddenValue:
			case nil:
				if len(text) > 0 {
					text, _, err = jsonedit.Remove(text, path, key)
				}
			default:
				var raw []byte
				if raw, err = json.Marshal(value); err == nil {
					text, err = jsonedit.Set(text, path, key, raw)
				}
			}
			if err != nil {
				return nil, sandbox.Wrap(sandbox.Conflict, err, "the user's file cannot be changed: mend it first")
			}
		}
		return text, nil
	})
}
