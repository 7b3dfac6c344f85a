package typed

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

var tooMuch = sandbox.Errorf(sandbox.Invalid, "too much")

// plugins has a plugin that is on, and a plugin that is off.
type plugins struct{ invoked []string }

func (p *plugins) List(context.Context, sandbox.Caller) ([]sandbox.Plugin, error) {
	return []sandbox.Plugin{{Name: "sales", Enabled: true}, {Name: "off"}, {Name: "gone", Enabled: true}}, nil
}

func (p *plugins) Commands(_ context.Context, _ sandbox.Caller, name string, skills bool) ([]sandbox.PluginCommand, error) {
	if name != "sales" || !skills {
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no plugin %q", name)
	}
	return []sandbox.PluginCommand{{Name: "call-prep"}, {Name: "team:plan"}, {Name: "broken"}}, nil
}

func (p *plugins) Invoke(_ context.Context, _ sandbox.Caller, thread, plugin, command, args string) (sandbox.PluginMessage, error) {
	name := plugin + ":" + command
	p.invoked = append(p.invoked, strings.Join([]string{thread, name, args}, "|"))
	switch name {
	case "sales:call-prep", "sales:team:plan":
		if args == "too much" {
			return sandbox.PluginMessage{}, tooMuch
		}
		return sandbox.PluginMessage{Message: "Prepare " + args, Findings: []sandbox.Finding{{Rule: "r"}}}, nil
	case "sales:broken":
		return sandbox.PluginMessage{}, sandbox.Errorf(sandbox.NotFound, "its file is not there")
	}
	return sandbox.PluginMessage{}, sandbox.Errorf(sandbox.NotFound, "there is no such command")
}

func TestReadMessage(t *testing.T) {
	t.Parallel()
	none := []sandbox.Finding{}
	found := func(command, args string) sandbox.TypedCommand {
		return sandbox.TypedCommand{Recognised: true, Command: command, Args: args, Message: "Prepare " + args, Findings: []sandbox.Finding{{Rule: "r"}}}
	}
	for text, want := range map[string]sandbox.TypedCommand{
		"/sales:call-prep Acme":                  found("sales:call-prep", "Acme"),
		"\n /sales:call-prep\t'Acme Corp'\nnow ": found("sales:call-prep", "'Acme Corp'\nnow"),
		"/sales:call-prep":                       found("sales:call-prep", ""),
		"/sales:team:plan x":                     found("sales:team:plan", "x"),
		"/sales:call-perp Acme":                  {Unknown: "sales:call-perp", Near: []string{"sales:call-prep"}},
		"/call-prep Acme":                        {Unknown: "call-prep", Near: []string{"sales:call-prep"}},
		"/off:do":                                {Unknown: "off:do"},
		"/tmp is full":                           {Unknown: "tmp"},
		"/sales:":                                {Unknown: "sales:"},
		"":                                       {},
		"/":                                      {},
		"/:":                                     {},
		"/ sales:call-prep":                      {},
		"//sales:call-prep":                      {},
		"/mnt/user-data":                         {},
		"/sales:../x":                            {},
		"/a\x00b":                                {},
		"/" + strings.Repeat("a", 201):           {},
		"say /sales:call-prep":                   {},
	} {
		if !want.Recognised {
			want.Message, want.Findings = text, none
		}
		got, err := New(&plugins{}).ReadMessage(t.Context(), sandbox.Caller{}, "t", text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%.40q: %+v, %v, want %+v", text, got, err, want)
		}
	}
}

// TestFails: a command that is there and cannot be rendered is an error, not a message.
func TestFails(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]error{"/sales:broken": sandbox.NotFound, "/sales:call-prep too much": sandbox.Invalid} {
		p := &plugins{}
		if got, err := New(p).ReadMessage(t.Context(), sandbox.Caller{}, "t", text); !errors.Is(err, want) || len(p.invoked) != 1 {
			t.Errorf("%s: %+v, %v, %v", text, got, err, p.invoked)
		}
	}
}
