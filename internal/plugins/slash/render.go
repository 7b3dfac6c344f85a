package slash

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// MaxRunOutput bounds what of the output of a command is put in, in bytes.
const MaxRunOutput = 32 << 10

// Limits of a message that is made from a command.
const (
	maxMessage      = 1 << 20 // bytes
	maxFiles        = 20      // that are put in
	maxFileBytes    = 256 << 10
	maxAllFileBytes = 512 << 10
	maxRuns         = 10
)

// Shell is a command that a command of a plugin wants to run before the agent sees its text.
type Shell struct {
	Command string   // for sh -c
	Args    []string // $0, $1, … of it: never part of its text, so that no argument becomes code
	Env     []string // "NAME=value"
}

// Context is what a command may reach while its text is made.
type Context struct {
	// ReadFile returns a file of the thread by its virtual path, at most limit bytes of it. Errors NotFound, Forbidden and Invalid
	// leave the text as it is.
	ReadFile func(ctx context.Context, path string, limit int64) (data []byte, more bool, err error)
	// Run runs a command inside the thread's sandbox and returns what it wrote, standard error included. nil: none is ever run.
	Run func(ctx context.Context, s Shell) (output string, exit int, err error)
	// Values are the ${NAME} that the text may use.
	Values map[string]string
}

// Message is the text of a command with its arguments put in.
type Message struct {
	Text     string
	Findings []sandbox.Finding
}

// Render puts arguments into the text of a command:
//
//	$ARGUMENTS     all of them, as they were given; without any place for them they are added at the end
//	$ARGUMENTS[0]  the first, and so on
//	$1 … $9, $10   the first, and so on; in a text that has a $0, that is the first
//	$name          of the arguments that the frontmatter names, in their order
//	${NAME}        of Context.Values
//	\$             a $
//	@path          the file is added at the end; without a / in front it is one of the workspace
//	!`command`     what the command writes, and so ```! blocks, where Context.Run allows it
//
// What stands for an argument that is not there stays, but a $name becomes nothing. Neither arguments nor what a
// command writes are looked at again, but for an @path in arguments. Errors: Invalid when there is
// too much of something; what Run answers.
func Render(ctx context.Context, c Command, args string, in Context) (Message, error) {
	words, err := Words(args)
	if err != nil {
		return Message{}, err
	}
	r := &renderer{ctx: ctx, c: c, args: strings.TrimSpace(args), words: words, in: in}
	if err := r.body(); err != nil {
		return Message{}, err
	}
	if r.args != "" && !r.placed {
		r.out.WriteString("\n\nARGUMENTS: " + r.args)
		r.spots = append(r.spots, r.args)
	}
	if err := r.files(); err != nil {
		return Message{}, err
	}
	if r.out.Len() > maxMessage {
		return Message{}, errTooLong
	}
	return Message{Text: r.out.String(), Findings: r.findings}, nil
}

var errTooLong = sandbox.Errorf(sandbox.Invalid, "the message would have more than %d bytes", maxMessage)

type renderer struct {
	ctx      context.Context
	c        Command
	args     string
	words    []string
	in       Context
	zero     bool // $0 is the first
	placed   bool // the text has a place for arguments
	runs     int
	out      strings.Builder
	spots    []string // pieces of the text in which an @path counts
	findings []sandbox.Finding
}

func (r *renderer) add(rule, format string, args ...any) {
	if len(r.findings) < maxFindings {
		r.findings = append(r.findings, sandbox.Finding{Rule: rule, Severity: sandbox.SeverityWarning, File: r.c.File, Message: fmt.Sprintf(format, args...)})
	}
}

// body writes the text with everything put in but files.
func (r *renderer) body() error {
	text, from := r.c.Body, 0
	list := places(text)
	r.zero = slices.ContainsFunc(list, func(p place) bool { return p.kind == placeNumber && p.name == "0" })
	var plain strings.Builder // what of the text is no output of a command
	for _, p := range list {
		r.out.WriteString(text[from:p.from])
		plain.WriteString(text[from:p.from])
		from = p.to
		if whole := text[p.from:p.to]; p.kind == placeCommand {
			out, err := r.run(p.name, whole)
			if err != nil {
				return err
			}
			r.out.WriteString(out)
			plain.WriteByte('\n')
		} else {
			value := r.value(p, whole)
			r.out.WriteString(value)
			plain.WriteString(value)
		}
		if r.out.Len() > maxMessage {
			return errTooLong
		}
	}
	r.out.WriteString(text[from:])
	plain.WriteString(text[from:])
	r.spots = append(r.spots, plain.String())
	return nil
}

// value returns what stands in the place of whole.
func (r *renderer) value(p place, whole string) string {
	switch p.kind {
	case placeDollar:
		return "$"
	case placeAll:
		r.placed = true
		return r.args
	case placeIndex:
		return r.word(p.name, 0, whole)
	case placeNumber:
		base := 1
		if r.zero {
			base = 0
		}
		return r.word(p.name, base, whole)
	case placeValue:
		if v, ok := r.in.Values[p.name]; ok {
			return v
		}
		return whole
	}
	i := slices.Index(r.c.Arguments, p.name)
	if i < 0 {
		return whole
	}
	r.placed = true
	if i < len(r.words) {
		return r.words[i]
	}
	return ""
}

// word returns an argument by its number. A missing argument stays as it is written.
func (r *renderer) word(number string, base int, whole string) string {
	n, err := strconv.Atoi(number)
	if n -= base; err != nil || n < 0 || n >= len(r.words) {
		return whole
	}
	r.placed = true
	return r.words[n]
}

// run returns the output of a command, or says that it was not run.
func (r *renderer) run(command, whole string) (string, error) {
	if r.in.Run == nil {
		r.add("command-not-run", "%.200s was not run: this server does not run commands of plugins by itself", whole)
		return whole, nil
	}
	if r.runs++; r.runs > maxRuns {
		r.add("command-not-run", "%.200s was not run: there are more than %d", whole, maxRuns)
		return whole, nil
	}
	s := Shell{Command: command, Args: r.words, Env: []string{"ARGUMENTS=" + r.args}}
	if !r.zero {
		s.Args = append([]string{"sh"}, r.words...)
	}
	for i, name := range r.c.Arguments {
		if i < len(r.words) && variableName.MatchString(name) {
			s.Env = append(s.Env, name+"="+r.words[i])
		}
	}
	r.placed = r.placed || usesArguments.MatchString(command)
	out, exit, err := r.in.Run(r.ctx, s)
	if err != nil {
		return "", err
	}
	if exit != 0 {
		r.add("command-failed", "%.200s ended with %d", whole, exit)
	}
	out = strings.TrimRight(strings.ToValidUTF8(out, "\ufffd"), "\n")
	if len(out) > MaxRunOutput {
		r.add("command-output", "%.200s wrote more than %d bytes; the rest is cut", whole, MaxRunOutput)
		out = strings.ToValidUTF8(out[:MaxRunOutput], "")
	}
	return out, nil
}

var (
	variableName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)
	usesArguments = regexp.MustCompile(`\$(\{?[0-9@*]|\{?ARGUMENTS\b)`)
	mention       = regexp.MustCompile("(^|[\\s(\\[\"'])@([A-Za-z0-9_./~+-][^\\s`\"'()\\[\\]<>|,;]*)")
)

// files adds the files that the text mentions.
func (r *renderer) files() error {
	if r.in.ReadFile == nil {
		return nil
	}
	seen, left := map[string]bool{}, int64(maxAllFileBytes)
	for _, m := range mention.FindAllStringSubmatch(strings.Join(r.spots, "\n"), -1) {
		path := virtual(m[2])
		if path == "" || seen[path] {
			continue
		}
		if len(seen) == maxFiles {
			r.add("file-left-out", "more than %d files are mentioned; the rest is left out", maxFiles)
			return nil
		}
		seen[path] = true
		data, more, err := r.in.ReadFile(r.ctx, path, min(left, maxFileBytes))
		switch kind := sandbox.KindOf(err); {
		case kind == sandbox.NotFound || kind == sandbox.Forbidden || kind == sandbox.Invalid:
			r.add("file-left-out", "@%.200s: there is no such file in the thread", m[2])
			continue
		case err != nil:
			return err
		}
		left -= int64(len(data))
		r.file(path, data, more)
	}
	return nil
}

// virtual returns the path of a mention: one without / is one of the workspace. A dot or a colon at the end
// belongs to the sentence.
func virtual(p string) string {
	p = strings.TrimRight(p, ".:!?")
	if p == "" || strings.HasPrefix(p, "~") {
		return ""
	}
	if strings.HasPrefix(p, "/") {
		return p
	}
	return sandbox.WorkspaceDir + "/" + p
}

// file writes one file at the end. Its text cannot end the block that it is in.
func (r *renderer) file(path string, data []byte, more bool) {
	if more {
		data = wholeRunes(data)
	}
	if !utf8.Valid(data) {
		r.add("file-left-out", "%.200s is no text; the agent can open it by its path", path)
		return
	}
	if more {
		r.add("file-cut", "%.200s is longer than what is put in", path)
	}
	text := strings.ReplaceAll(string(data), "</file", "<\\/file")
	cut := ""
	if more {
		cut = ` cut="true"`
	}
	fmt.Fprintf(&r.out, "\n\n<file path=%q%s>\n%s\n</file>", path, cut, strings.TrimRight(text, "\n"))
}

// wholeRunes takes a character off the end that was cut in the middle.
func wholeRunes(data []byte) []byte {
	for n := 1; n < utf8.UTFMax && n <= len(data); n++ {
		if b := data[len(data)-n]; utf8.RuneStart(b) {
			if !utf8.FullRune(data[len(data)-n:]) {
				return data[:len(data)-n]
			}
			break
		}
	}
	return data
}
