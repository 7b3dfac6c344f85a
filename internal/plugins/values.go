package plugins

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/config/extensions"
	"github.com/skerry-sandbox/skerry/internal/platform/jsonedit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// optionValues are what users set for their plugins.
type optionValues struct {
	extensions *extensions.Files
	sealer     Sealer // nil: values are kept as they are
	log        *slog.Logger
}

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

// of reads the user's own file beside extensions_config.json.
func (v optionValues) of(o sandbox.Owner) (userValues, error) {
	found := userValues{named: map[string]string{}, of: map[string]map[string]any{}}
	raw, err := v.extensions.Raw(o, valuesSection)
	if err != nil {
		return found, err
	}
	if named, err := object(raw); err == nil {
		for k, value := range named {
			var text string
			if json.Unmarshal(value, &text) == nil && len(text) <= maxValue {
				found.named[k] = text
			}
		}
	}
	if raw, err = v.extensions.Raw(o, extensions.PluginsSection); err != nil {
		return found, err
	}
	plugins, _ := object(raw) // the reader of the file has looked at it
	for name, value := range plugins {
		member, err := object(value)
		if err != nil {
			continue // a plain true or false
		}
		var config map[string]any
		if json.Unmarshal(member[configMember], &config) == nil {
			found.of[name] = config
		}
	}
	return found, nil
}

// checkValues looks at values that a user sends for the options of a plugin.
func checkValues(p *Plugin, values map[string]any) error {
	e := &sandbox.Error{Kind: sandbox.Invalid, Detail: "the plugin does not ask for this value"}
	bad := func(key, format string, args ...any) {
		e.Fields = append(e.Fields, sandbox.Field{Name: "values." + key, Detail: fmt.Sprintf(format, args...)})
	}
	for _, key := range sorted(values) {
		i := slices.IndexFunc(p.Options, func(o sandbox.PluginOption) bool { return o.Key == key })
		switch value := values[key]; {
		case i < 0:
			bad(key, "the plugin asks for no such value; it asks for: %s", asked(p))
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

// asked lists what a plugin asks for.
func asked(p *Plugin) string {
	keys := make([]string, 0, len(p.Options))
	for _, o := range p.Options {
		keys = append(keys, o.Key)
	}
	return cmp.Or(strings.Join(keys, ", "), "none")
}

// set stores values of a user: nil removes one, "***" keeps what is stored.
// A text for an option that is sensitive is kept encrypted, unless it names a secret.
func (v optionValues) set(ctx context.Context, o sandbox.Owner, p *Plugin, name string, values map[string]any) error {
	values = maps.Clone(values)
	for _, option := range p.Options {
		text, ok := values[option.Key].(string)
		if !ok || !option.Sensitive || text == hiddenValue || v.sealer == nil || secretReference.MatchString(text) {
			continue
		}
		sealed, err := v.sealer.Seal(sandbox.PluginValuePurpose(o), []byte(text))
		if err != nil {
			return err
		}
		values[option.Key] = sandbox.SealedValue + base64.StdEncoding.EncodeToString(sealed)
	}
	return v.extensions.Edit(ctx, o, func(text []byte) ([]byte, error) {
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

// secretReference is a value that stands for a secret of the user's.
var secretReference = regexp.MustCompile(`^\$\{secret:[^}]+\}$`)

// Renew encrypts the values that are kept for an older key than the newest. A value that cannot be read is left alone.
func (s *Service) Renew(ctx context.Context) (changed int, err error) { return s.values.renewAll(ctx) }

func (v optionValues) renewAll(ctx context.Context) (changed int, err error) {
	owners, err := filepath.Glob(strings.TrimSuffix(v.extensions.Path(), ".json") + ".d/*/*.json")
	if err != nil || v.sealer == nil {
		return 0, err
	}
	for _, file := range owners {
		o := sandbox.Owner{Tenant: filepath.Base(filepath.Dir(file)), User: strings.TrimSuffix(filepath.Base(file), ".json")}
		values, err := v.of(o)
		if err != nil {
			v.log.Warn("values for plugins are not looked at", "tenant", o.Tenant, "user", o.User, "error", err)
			continue
		}
		for _, name := range sorted(values.of) {
			for _, key := range sorted(values.of[name]) {
				text, _ := values.of[name][key].(string)
				did, err := v.renew(ctx, o, name, key, text)
				if err != nil {
					return changed, err
				}
				if did {
					changed++
				}
			}
		}
	}
	return changed, nil
}

// renew exchanges one value if it did not change since it was read.
func (v optionValues) renew(ctx context.Context, o sandbox.Owner, name, key, was string) (done bool, err error) {
	encoded, ok := strings.CutPrefix(was, sandbox.SealedValue)
	if !ok {
		return false, nil
	}
	purpose := sandbox.PluginValuePurpose(o)
	sealed, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || !v.sealer.Stale(purpose, sealed) {
		return false, nil //nolint:nilerr // it is no value of ours
	}
	plain, err := v.sealer.Open(purpose, sealed)
	if err != nil {
		v.log.Warn("a value for a plugin is encrypted for a key that is not there", "tenant", o.Tenant, "user", o.User, "plugin", name, "error", err)
		return false, nil
	}
	if sealed, err = v.sealer.Seal(purpose, plain); err != nil {
		return false, err
	}
	raw, err := json.Marshal(sandbox.SealedValue + base64.StdEncoding.EncodeToString(sealed))
	if err != nil {
		return false, err
	}
	err = v.extensions.Edit(ctx, o, func(text []byte) ([]byte, error) {
		if !bytes.Contains(text, []byte(encoded)) {
			return nil, nil // it was set anew meanwhile
		}
		done = true
		return jsonedit.Set(text, []string{extensions.PluginsSection, name, configMember}, key, raw)
	})
	return done && err == nil, err
}
