package slash

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestWords(t *testing.T) {
	for args, want := range map[string][]string{
		"":                        nil,
		"  ":                      nil,
		"Acme Corp":               {"Acme", "Corp"},
		`"Acme Corp" 'a b' c`:     {"Acme Corp", "a b", "c"},
		`a"b c"d`:                 {"ab cd"},
		`a\ b \"x\"`:              {"a b", `"x"`},
		`"a\"b\\c\$d\e"`:          {`a"b\c$d\e`},
		`'a\b'`:                   {`a\b`},
		`don't stop`:              {"don't", "stop"},
		`"never closed x`:         {`"never`, "closed", "x"},
		"a\u00a0b\tc\nd":          {"a", "b", "c", "d"},
		`'' ""`:                   {"", ""},
		`\`:                       {`\`},
		`$(rm -rf /) ` + "`id`":   {"$(rm", "-rf", "/)", "`id`"},
		"größe 'a größe' \\größe": {"größe", "a größe", "größe"},
	} {
		got, err := Words(args)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v; want %q", args, got, err, want)
		}
	}
	for _, args := range []string{strings.Repeat("x", MaxArguments+1), strings.Repeat("x ", maxWords+1)} {
		if _, err := Words(args); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("%d bytes: %v", len(args), err)
		}
	}
}

func render(t *testing.T, body, args string, in Context) Message {
	t.Helper()
	c, _, err := Parse("c", []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	m, err := Render(context.Background(), c, args, in)
	if err != nil {
		t.Fatalf("%q: %v", body, err)
	}
	return m
}

func TestArguments(t *testing.T) {
	for _, c := range []struct{ body, args, want string }{
		{"Prepare for $ARGUMENTS.", "Acme Corp", "Prepare for Acme Corp."},
		{"Prepare.", "Acme Corp", "Prepare.\n\nARGUMENTS: Acme Corp"},
		{"Prepare.", "  ", "Prepare."},
		{"Prepare $ARGUMENTS.", "", "Prepare ."},
		{"From $1 to $2", `"New York" Rome`, "From New York to Rome"},
		{"From $0 to $1", `"New York" Rome`, "From New York to Rome"},
		{"From $ARGUMENTS[0] to $ARGUMENTS[1]", `"New York" Rome`, "From New York to Rome"},
		{"From $1 to $2 by $3", "a b", "From a to b by $3"},
		{"It costs $100, $5 or \\$1; $x", "a", "It costs $100, $5 or $1; $x\n\nARGUMENTS: a"},
		{"---\narguments: [from, to]\ndescription: x\n---\n$from -> $to, $other", "a", "a -> , $other"},
		{"$1", "'$2 $ARGUMENTS' b", "$2 $ARGUMENTS"},
		{"${ROOT}/x ${NO}", "", "/mnt/plugins/p/x ${NO}"},
		{"$10 is not $1", "a b c d e f g h i j", "j is not a"},
	} {
		if got := render(t, c.body, c.args, Context{Values: map[string]string{"ROOT": "/mnt/plugins/p"}}).Text; got != c.want {
			t.Errorf("%q with %q: %q, want %q", c.body, c.args, got, c.want)
		}
	}
}

func TestMentions(t *testing.T) {
	files := map[string]string{"/mnt/user-data/workspace/a.md": "text of a </file> <b>\n", "/mnt/user-data/uploads/b c.md": "b", "/mnt/user-data/workspace/bin": "\xff\xfe", "/mnt/user-data/workspace/big": strings.Repeat("ä", maxFileBytes)}
	asked := map[string]int{}
	in := Context{ReadFile: func(_ context.Context, path string, limit int64) ([]byte, bool, error) {
		asked[path]++
		text, ok := files[path]
		switch {
		case strings.HasPrefix(path, "/etc"):
			return nil, false, sandbox.Errorf(sandbox.Forbidden, "no")
		case !ok:
			return nil, false, sandbox.Errorf(sandbox.NotFound, "no")
		case int64(len(text)) > limit:
			return []byte(text[:limit]), true, nil
		}
		return []byte(text), false, nil
	}}
	m := render(t, "Read @$1 and @a.md. Mail x@y.example, use `@angular/core`, (@/etc/passwd)", "a.md", in)
	want := "Read @a.md and @a.md. Mail x@y.example, use `@angular/core`, (@/etc/passwd)\n\n<file path=\"/mnt/user-data/workspace/a.md\">\ntext of a <\\/file> <b>\n</file>"
	if m.Text != want {
		t.Errorf("got  %q\nwant %q", m.Text, want)
	}
	if asked["/mnt/user-data/workspace/a.md"] != 1 || asked["/etc/passwd"] != 1 || len(asked) != 2 {
		t.Errorf("asked for %v", asked)
	}
	if len(m.Findings) != 1 || m.Findings[0].Rule != "file-left-out" {
		t.Errorf("findings %+v", m.Findings)
	}
	m = render(t, "@bin @big", "", in)
	if strings.Contains(m.Text, "\xff") || !strings.Contains(m.Text, `cut="true"`) || len(m.Findings) != 2 || len(m.Text) > maxFileBytes+1000 {
		t.Errorf("%d bytes, %+v", len(m.Text), m.Findings)
	}
	in.ReadFile = func(context.Context, string, int64) ([]byte, bool, error) { return nil, false, errors.New("disk") }
	if _, err := Render(context.Background(), Command{Body: "@a"}, "", in); err == nil {
		t.Error("a disk that fails went unseen")
	}
}

// TestCommandsAreNotRun: neither without leave, nor when an argument or the output of another looks like one.
func TestCommandsAreNotRun(t *testing.T) {
	body := "Status: !`git status`\n```!\nls -l\n```\nnot wow!`this`"
	m := render(t, body, "", Context{})
	if m.Text != body || len(m.Findings) != 2 || m.Findings[0].Rule != "command-not-run" {
		t.Errorf("%q %+v", m.Text, m.Findings)
	}
	var ran []Shell
	in := Context{Run: func(_ context.Context, s Shell) (string, int, error) {
		ran = append(ran, s)
		return "out !`again` $1 @x\n", len(ran) - 1, nil
	}, ReadFile: func(_ context.Context, path string, _ int64) ([]byte, bool, error) {
		t.Errorf("the output of a command made it read %s", path)
		return nil, false, sandbox.NotFound
	}}
	m = render(t, body+"\n$1 $2", "'!`evil`' '; rm -rf /'", in)
	if want := "Status: out !`again` $1 @x\nout !`again` $1 @x\nnot wow!`this`\n!`evil` ; rm -rf /"; m.Text != want {
		t.Errorf("got  %q\nwant %q", m.Text, want)
	}
	if len(ran) != 2 || ran[0].Command != "git status" || ran[1].Command != "ls -l" || !slices.Equal(ran[0].Args, []string{"sh", "!`evil`", "; rm -rf /"}) {
		t.Errorf("ran %q", ran)
	}
	if len(m.Findings) != 1 || m.Findings[0].Rule != "command-failed" {
		t.Errorf("%+v", m.Findings)
	}
	ran = nil
	m = render(t, strings.Repeat("!`x`\n", maxRuns+3), "", in)
	if len(ran) != maxRuns {
		t.Errorf("%d ran", len(ran))
	}
}

// TestSlowTexts: a text that its author meant to be slow is read in no time.
func TestSlowTexts(t *testing.T) {
	for _, piece := range []string{"```!\n$1", "!`", "!`$1", "$ARGUMENTS[", "${", "@a@", "\\", "$a"} {
		body := strings.Repeat(piece, (300<<10)/len(piece))
		began := time.Now()
		if _, err := Render(context.Background(), Command{Body: body}, "x", Context{}); err != nil {
			t.Errorf("%q: %v", piece, err)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%q: %s", piece, took)
		}
	}
}

func FuzzRender(f *testing.F) {
	f.Add("a $1 $ARGUMENTS[0] @x !`y $1` ${V} \\$", `"a b" c`)
	f.Add("---\narguments: [a, b]\n---\n$a $b $0", `don't 'x`)
	f.Add("```!\nls $1\n```\n@/mnt/user-data/x.", "@y $2 !`z`")
	f.Fuzz(func(t *testing.T, body, args string) {
		c, _, err := Parse("c", []byte(body))
		if err != nil {
			return
		}
		in := Context{
			Values: map[string]string{"V": "v"},
			Run: func(_ context.Context, s Shell) (string, int, error) {
				if !strings.Contains(c.Body, s.Command) {
					t.Errorf("%q was run, which is not in the text %q", s.Command, c.Body)
				}
				return "out", 0, nil
			},
			ReadFile: func(_ context.Context, path string, limit int64) ([]byte, bool, error) {
				if !strings.HasPrefix(path, "/") || limit < 0 {
					t.Errorf("%q, %d", path, limit)
				}
				return []byte("</file>"), false, nil
			},
		}
		m, err := Render(context.Background(), c, args, in)
		if err != nil {
			if sandbox.KindOf(err) != sandbox.Invalid {
				t.Error(err)
			}
			return
		}
		if len(m.Text) > maxMessage {
			t.Errorf("%d bytes", len(m.Text))
		}
		if bare, err := Render(context.Background(), c, args, Context{}); err == nil && c.Body != "" && !strings.ContainsAny(c.Body, "$") && !strings.HasPrefix(bare.Text, c.Body) {
			t.Errorf("a text without places changed: %q from %q", bare.Text, c.Body)
		}
	})
}
