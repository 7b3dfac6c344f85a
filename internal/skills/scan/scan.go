// Package scan looks at the files of a skill for what a person should see before an agent follows them:
// prompt injection, text that does not show, secrets, and commands that fetch and run code, steal
// credentials, open shells or destroy files.
//
// It is a sieve, not a wall: it reads text and knows phrases, so it misses what is well hidden. The wall is
// the sandbox. A finding of SeverityError has no honest reading where it stands; what has one,
// such as an installer's line in a manual, is a warning. Findings never repeat a secret.
package scan

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Limits of a scan. What is beyond them is said in a finding.
const (
	maxFiles    = 2000
	maxFile     = 16 << 20 // bytes read of one file
	maxTotal    = 64 << 20
	maxFindings = 200
	maxPerRule  = 3       // of one rule in one file
	maxLine     = 8 << 10 // longer lines are looked at in pieces
	overlap     = 256     // of two pieces
	sniff       = 8000    // bytes that decide whether a file is text
)

// Folder scans all files below the top of fsys. The findings are sorted: errors first, then by file and
// line. The error is ctx's or that of reading; links and special files are passed over.
func Folder(ctx context.Context, fsys fs.FS) ([]sandbox.Finding, error) {
	s := &scanner{}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case !d.Type().IsRegular():
			return nil
		}
		if s.files++; s.files > maxFiles || s.bytes > maxTotal {
			s.cut = true
			return fs.SkipAll
		}
		return s.file(ctx, fsys, name)
	})
	if err != nil {
		return nil, fmt.Errorf("scan: %w", err)
	}
	return s.result(), nil
}

// Refuses reports whether a strict install refuses these findings: one of them is an error.
func Refuses(findings []sandbox.Finding) bool {
	return slices.ContainsFunc(findings, func(f sandbox.Finding) bool { return f.Severity == sandbox.SeverityError })
}

type scanner struct {
	found []sandbox.Finding
	files int
	bytes int64
	cut   bool // a limit was reached
	// of the file at hand
	name  string
	rest  []byte         // what is behind the line at hand
	count map[string]int // findings by rule
}

func (s *scanner) file(ctx context.Context, fsys fs.FS, name string) error {
	f, err := fsys.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return err
	}
	if len(data) > maxFile {
		data, s.cut = data[:maxFile], true
	}
	s.bytes += int64(len(data))
	s.name, s.count = name, map[string]int{}
	s.nameRules(data)
	if bytes.IndexByte(data[:min(len(data), sniff)], 0) >= 0 {
		return nil // images and the like
	}
	s.text(ctx, data)
	return ctx.Err()
}

// add notes a finding of the file at hand.
func (s *scanner) add(rule, severity string, line int, message string) {
	if s.count[rule]++; s.count[rule] > maxPerRule {
		return
	}
	// Errors are never crowded out by the rest.
	if len(s.found) >= maxFindings && (severity != sandbox.SeverityError || len(s.found) >= 2*maxFindings) {
		s.cut = true
		return
	}
	s.found = append(s.found, sandbox.Finding{Rule: rule, Severity: severity, File: s.name, Line: line, Message: message})
}

// nameRules look at the file as a whole.
func (s *scanner) nameRules(data []byte) {
	base := path.Base(s.name)
	switch {
	case strings.EqualFold(base, "SKILL.md") && s.name != "SKILL.md":
		s.add("nested-skill", sandbox.SeverityWarning, 0, "a skill inside of a skill: no list shows it, and an agent may follow it")
	case strings.HasPrefix(base, ".") && base != ".gitignore" && base != ".gitkeep":
		s.add("hidden-file", sandbox.SeverityInfo, 0, "a file that listings do not show")
	}
	for magic, what := range map[string]string{"PK\x03\x04": "ZIP", "\x1f\x8b": "gzip", "7z\xbc\xaf": "7z", "Rar!": "RAR", "\xfd7zXZ": "xz"} {
		if bytes.HasPrefix(data, []byte(magic)) && !office(base) {
			s.add("nested-archive", sandbox.SeverityInfo, 0, "an archive ("+what+"): this scan does not look into it")
		}
	}
	if bytes.HasPrefix(data, []byte("\x7fELF")) || bytes.HasPrefix(data, []byte("MZ\x90")) || bytes.HasPrefix(data, []byte("\xcf\xfa\xed\xfe")) {
		s.add("program", sandbox.SeverityWarning, 0, "a compiled program: what it does cannot be read")
	}
}

func office(base string) bool {
	return slices.Contains([]string{".docx", ".xlsx", ".pptx", ".odt", ".ods", ".odp", ".epub", ".whl", ".jar", ".svgz"}, strings.ToLower(path.Ext(base)))
}

// apartFiles are no part of what an agent runs in a sandbox: they build images, run in CI, or are what tests are fed
// with. They count as the code blocks of a document do.
var apartFiles = regexp.MustCompile(`(?i)(?:^|/)(?:(?:Docker|Container)file[^/]*|[^/]*\.dockerfile|\.github/workflows/[^/]*|\.gitlab-ci\.yml)$|(?:^|/)(?:tests?|__tests__|fixtures|testdata|specs?)/`)

// warns finds a line about attacks, in which what is found is what it warns of. It takes no error away, but makes it
// a warning: whoever attacks can write so, too.
var warns = regexp.MustCompile(`(?i)\b(?:attack(?:er|s|ers|ing)?|vulnerab\w+|exploit\w*|malicious|hostile|payloads?|SSRF|injections?|PoCs?|threats?)\b|\b(?:is|are|be|gets?|must be)\s+(?:blocked|denied|refused|rejected|forbidden|detected)\b|\b(?:block|deny|reject|refuse|forbid|detect)s?\b`)

// where says what kind of text a line is in.
type where int

const (
	inCode  where = iota // a script or a configuration
	inProse              // a sentence of a document
	inFence              // a code block of a document
)

func (s *scanner) text(ctx context.Context, data []byte) {
	prose := slices.Contains([]string{".md", ".mdx", ".markdown", ".txt", ".rst", ".html", ".htm"}, strings.ToLower(path.Ext(s.name)))
	apart := apartFiles.MatchString(s.name)
	fenced := false
	number := 0
	for len(data) > 0 {
		if number++; number%1024 == 0 && ctx.Err() != nil {
			return
		}
		line, rest, _ := bytes.Cut(data, []byte("\n"))
		data, s.rest = rest, rest
		at := inCode
		if apart {
			at = inFence
		}
		if prose {
			trimmed := bytes.TrimLeft(line, " \t>")
			if bytes.HasPrefix(trimmed, []byte("```")) || bytes.HasPrefix(trimmed, []byte("~~~")) {
				fenced = !fenced
			}
			at = inProse
			if fenced {
				at = inFence
			}
		}
		s.unicode(line, number)
		for len(line) > maxLine {
			s.line(string(line[:maxLine]), number, at)
			line = line[maxLine-overlap:]
		}
		s.line(string(line), number, at)
	}
}

func (s *scanner) line(line string, number int, at where) {
	lower := strings.ToLower(line)
	for i := range rules {
		r := &rules[i]
		if !r.hinted(lower) {
			continue
		}
		m := r.pattern.FindStringIndex(line)
		if m == nil || r.unless != nil && r.unless.MatchString(line) {
			continue
		}
		severity := r.severity[at]
		if at == inProse && r.quoted && quoted(line, m[0], m[1]) {
			severity = r.severity[inFence]
		}
		if severity == sandbox.SeverityError && warns.MatchString(line) {
			severity = sandbox.SeverityWarning
		}
		if severity != "" {
			s.add(r.name, severity, number, r.message)
		}
	}
	s.secrets(line, lower, number)
}

// quoted tells what a sentence speaks of from what it says: the match stands between quotation marks or
// backticks, or in a cell of a table.
func quoted(line string, from, to int) bool {
	before, after := line[:from], line[to:]
	for _, pair := range []string{"``", `""`, "“”", "‘’", "||"} {
		open, _ := utf8.DecodeRuneInString(pair)
		end, _ := utf8.DecodeLastRuneInString(pair)
		if i := strings.LastIndexByte(before, byte(open)); open < utf8.RuneSelf && i >= 0 && strings.ContainsRune(after, end) && strings.Count(before, string(open))%2 == 1 {
			return true
		}
		if open >= utf8.RuneSelf && strings.ContainsRune(before, open) && strings.ContainsRune(after, end) {
			return true
		}
	}
	return false
}

var rank = map[string]int{sandbox.SeverityError: 0, sandbox.SeverityWarning: 1, sandbox.SeverityInfo: 2}

func (s *scanner) result() []sandbox.Finding {
	s.name = ""
	slices.SortStableFunc(s.found, func(a, b sandbox.Finding) int {
		return cmp.Or(cmp.Compare(rank[a.Severity], rank[b.Severity]), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	if s.cut {
		s.found = append(s.found, sandbox.Finding{Rule: "scan-truncated", Severity: sandbox.SeverityWarning,
			Message: fmt.Sprintf("there is more than this scan looks at (%d files, %d bytes, %d findings); look at the rest yourself", maxFiles, int64(maxTotal), maxFindings)})
	}
	return s.found
}
