// Package lint checks a skill as strictly as its publication wants it: the Agent Skills standard
// (https://agentskills.io) to the letter, files that its text speaks of, and whether it packs into an archive that
// installs elsewhere. Loading a skill is lenient; this is for those who write one, and for servers with
// strict_frontmatter.
package lint

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"

	"github.com/skerry-sandbox/skerry/internal/platform/subprocess"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/archive"
	"github.com/skerry-sandbox/skerry/internal/skills/format"
	"github.com/skerry-sandbox/skerry/internal/skills/scan"
)

// manifest is the file that makes a folder a skill.
const manifest = "SKILL.md"

// tolerated are findings of format.Parse that the standard does not speak of, or only recommends. All
// others are errors here.
var tolerated = []string{"crlf", "body-empty", "body-long"}

// Strict returns the findings of format.Parse as the standard judges them: what it does not allow is an
// error. The argument stays as it is.
func Strict(findings []sandbox.Finding) []sandbox.Finding {
	strict := slices.Clone(findings)
	for i, f := range strict {
		if !slices.Contains(tolerated, f.Rule) {
			strict[i].Severity = sandbox.SeverityError
		}
	}
	return strict
}

// Folder checks the skill in a folder on this machine, which is to be called name: the standard, the files
// that its text speaks of, the static scan, and whether it would pack. The findings come in that order.
// NotFound: there is no such folder, or it has no SKILL.md.
func Folder(ctx context.Context, dir, name string) ([]sandbox.Finding, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.NotFound, err, "there is no folder of that name")
	}
	defer root.Close()
	found, err := Manifest(root.FS(), name) // a command of a user, who can end it
	if err != nil {
		return nil, err
	}
	more, err := scan.Folder(ctx, root.FS())
	if err != nil {
		return nil, err
	}
	found = append(found, more...)
	err = archive.Pack(ctx, io.Discard, dir, name, archive.DefaultLimits())
	var refused *archive.Refusal
	switch {
	case errors.As(err, &refused):
		var e *sandbox.Error
		errors.As(err, &e)
		found = append(found, sandbox.Finding{Rule: "archive-" + string(refused.Reason), Severity: sandbox.SeverityError, File: refused.Entry, Message: e.Detail})
	case errors.Is(err, sandbox.Invalid): // the name, which Manifest has told
	case err != nil:
		return nil, err
	}
	return found, nil
}

// apart is Manifest of a folder, in a process of its own: the time of a parser of Markdown grows with the square of
// what is nested.
var apart = subprocess.NewFolder("lint", Manifest)

// Apart is Manifest of a skill that may be hostile. The error is Invalid when the skill takes too long to check.
func Apart(ctx context.Context, root *os.Root, name string) ([]sandbox.Finding, error) {
	if _, err := root.Stat(manifest); err != nil {
		return nil, sandbox.Wrap(sandbox.NotFound, err, "the folder has no %s", manifest)
	}
	found, err := apart.Call(ctx, root, name)
	if errors.Is(err, subprocess.ErrTooMuch) {
		return nil, sandbox.Errorf(sandbox.Invalid, "%s takes too long, or too much memory, to check: nest less in it", manifest)
	}
	return found, err
}

// Manifest checks SKILL.md and what it speaks of. Files of fsys are only looked at.
func Manifest(fsys fs.FS, name string) ([]sandbox.Finding, error) {
	f, err := fsys.Open(manifest)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.NotFound, err, "the folder has no %s", manifest)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, format.MaxTextBytes+1))
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Invalid, err, "%s cannot be read", manifest)
	}
	_, findings, parsed := format.Parse(name, raw)
	found := Strict(findings)
	if parsed != nil {
		return found, nil // what is wrong is among them
	}
	front, _, err := format.ReadFront(raw)
	if err != nil {
		return found, nil //nolint:nilerr // as above
	}
	if v, ok := front.Fields["allowed-tools"]; ok {
		if _, text := v.(string); !text {
			found = append(found, sandbox.Finding{
				Rule: "allowed-tools-type", Severity: sandbox.SeverityError, File: manifest, Line: front.Lines["allowed-tools"],
				Message: "allowed-tools is one text with blanks between the tools: \"Bash(git:*) Read\"",
			})
		}
	}
	first := bytes.Count(raw, []byte("\n")) - bytes.Count(front.Body, []byte("\n"))
	return append(found, references(fsys, front.Body, first)...), nil
}

// maxReferences bounds the findings about files that are not there.
const maxReferences = 50

// references looks up each file of the skill that the text links to. It also looks up files named in a piece
// of code that begins with one of the standard's folders.
func references(fsys fs.FS, body []byte, first int) []sandbox.Finding {
	var found []sandbox.Finding
	seen := map[string]bool{}
	add := func(rule, severity, target, message string, at int) {
		if !seen[rule+target] && len(found) < maxReferences {
			seen[rule+target] = true
			line := first + 1 + bytes.Count(body[:at], []byte("\n"))
			found = append(found, sandbox.Finding{Rule: rule, Severity: severity, File: manifest, Line: line, Message: message})
		}
	}
	at := 0 // where the last piece of text stood: a link has no place of its own
	_ = ast.Walk(goldmark.New().Parser().Parse(text.NewReader(body)), func(n ast.Node, enter bool) (ast.WalkStatus, error) {
		if !enter {
			return ast.WalkContinue, nil
		}
		var link []byte
		switch x := n.(type) {
		case *ast.Text:
			at = x.Segment.Start
		case *ast.Link:
			link = x.Destination
		case *ast.Image:
			link = x.Destination
		case *ast.CodeSpan:
			if p, start := codePath(x, body); p != "" && !there(fsys, p) {
				add("missing-file", sandbox.SeverityWarning, p, "speaks of `"+p+"`, which is not in the skill", start)
			}
			return ast.WalkSkipChildren, nil
		}
		if link == nil {
			return ast.WalkContinue, nil
		}
		if start := firstText(n); start >= 0 {
			at = start
		}
		p, ok := local(string(link))
		switch {
		case !ok:
		case !fs.ValidPath(p):
			add("link-leaves", sandbox.SeverityError, p, "links to "+quote(p)+", which is outside of the skill", at)
		case !there(fsys, p):
			add("missing-file", sandbox.SeverityError, p, "links to "+quote(p)+", which is not in the skill", at)
		}
		return ast.WalkContinue, nil
	})
	return found
}

func quote(p string) string {
	if len(p) > 200 {
		p = strings.ToValidUTF8(p[:200], "") + "…"
	}
	return "`" + p + "`"
}

func there(fsys fs.FS, p string) bool {
	_, err := fs.Stat(fsys, p)
	return err == nil
}

func firstText(n ast.Node) int {
	if t, ok := n.FirstChild().(*ast.Text); ok {
		return t.Segment.Start
	}
	return -1
}

// placeholders stand in a link for what the agent is to put there.
var placeholders = regexp.MustCompile(`[{}<>$*\[\]…]|~~|\.\.\.`)

// local returns the path that a link means within the skill. Links to sites, to places within the text, and
// to files of the sandbox are none.
func local(link string) (string, bool) {
	u, err := url.Parse(link)
	if err != nil || u.Scheme != "" || u.Host != "" || u.Path == "" || strings.HasPrefix(u.Path, "/") || placeholders.MatchString(u.Path) {
		return "", false
	}
	return path.Clean(u.Path), true
}

var codeFile = regexp.MustCompile(`^(?:\./)?((?:scripts|references|assets)/[\w./-]*\w\.\w+)$`)

func codePath(span *ast.CodeSpan, body []byte) (string, int) {
	t, ok := span.FirstChild().(*ast.Text)
	if !ok || span.ChildCount() != 1 {
		return "", 0
	}
	m := codeFile.FindSubmatch(t.Segment.Value(body))
	if m == nil || !fs.ValidPath(string(m[1])) {
		return "", 0
	}
	return string(m[1]), t.Segment.Start
}
