package skills

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/archive"
	"github.com/skerry-sandbox/skerry/internal/skills/format"
	"github.com/skerry-sandbox/skerry/internal/skills/lint"
	"github.com/skerry-sandbox/skerry/internal/skills/scan"
	"github.com/skerry-sandbox/skerry/internal/tools/argform"
)

// localTime bounds what is done with files of this machine.
const localTime = 5 * time.Minute

// linted is what became of one skill.
type linted struct {
	Path     string            `json:"path"`
	Name     string            `json:"name"`
	OK       bool              `json:"ok"` // no errors
	Findings []sandbox.Finding `json:"findings"`
}

func newSkillsLint(api *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "lint PATH…", Short: "Check skills against the Agent Skills standard, and for what is dangerous",
		Long: "Checks skills as strictly as publishing them wants: the standard (https://agentskills.io) to the letter, files that the text speaks of,\n" +
			"hidden text, secrets and dangerous commands, and whether the skill packs into an archive. A server is more lenient\n" +
			"when it loads them, unless it has strict_frontmatter.\n\n" +
			"A PATH is a skill's folder, a folder of skills, or a .skill file. No server is needed.\n\n" + skillsExitCodes,
		Example: "  skerry skills lint my-skill\n  skerry skills lint skills/public downloaded.skill\n  skerry skills lint --json . | jq '.[].findings[]'",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), localTime)
			defer cancel()
			all := []linted{}
			for _, p := range args {
				found, err := lintPath(ctx, p)
				if err != nil {
					return skillFailed(fmt.Errorf("%s: %w", p, err))
				}
				all = append(all, found...)
			}
			return showLint(cmd, all, api.JSON)
		},
	}
}

func showLint(cmd *cobra.Command, all []linted, asJSON bool) error {
	bad := 0
	by := map[string]int{}
	for _, l := range all {
		if !l.OK {
			bad++
		}
		for _, f := range l.Findings {
			by[f.Severity]++
		}
	}
	switch {
	case asJSON:
		if err := output.JSON(cmd.OutOrStdout(), all); err != nil {
			return err
		}
	default:
		for _, l := range all {
			showFindings(cmd.OutOrStdout(), l.Path, l.Findings)
		}
		text := counted(by)
		if text == "" {
			text = "nothing to say"
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", output.Count(len(all), "skill"), text)
	}
	if bad > 0 {
		return exit.With(exitRefused, "%s not as the standard wants", haveErrors(bad))
	}
	return nil
}

func haveErrors(n int) string {
	if n == 1 {
		return "1 skill is"
	}
	return fmt.Sprintf("%d skills are", n)
}

// lintPath checks a skill's folder, each skill in a folder, or an archive.
func lintPath(ctx context.Context, p string) ([]linted, error) {
	info, err := os.Stat(p)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no such file or folder")
	case err != nil:
		return nil, err
	case !info.IsDir():
		one, err := lintArchive(ctx, p)
		return []linted{one}, err
	}
	if format.IsSkill(p) {
		one, err := lintFolder(ctx, p, p)
		return []linted{one}, err
	}
	entries, err := os.ReadDir(p)
	if err != nil {
		return nil, err
	}
	var all []linted
	for _, e := range entries {
		if sub := filepath.Join(p, e.Name()); e.IsDir() && format.IsSkill(sub) {
			one, err := lintFolder(ctx, sub, sub)
			if err != nil {
				return nil, err
			}
			all = append(all, one)
		}
	}
	if len(all) == 0 {
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no SKILL.md, neither in it nor in a folder below")
	}
	return all, nil
}

func lintFolder(ctx context.Context, dir, shown string) (linted, error) {
	abs, err := filepath.Abs(dir) // "." has a name, too
	if err != nil {
		return linted{}, err
	}
	return lintNamed(ctx, dir, shown, filepath.Base(abs))
}

func lintNamed(ctx context.Context, dir, shown, name string) (linted, error) {
	found, err := lint.Folder(ctx, dir, name)
	if found == nil {
		found = []sandbox.Finding{}
	}
	return linted{Path: shown, Name: name, OK: !scan.Refuses(found), Findings: found}, err
}

// lintArchive unpacks an archive for the time of the check. A refusal is the archive's finding.
func lintArchive(ctx context.Context, file string) (_ linted, err error) {
	temp, err := os.MkdirTemp("", "skerry-lint-")
	if err != nil {
		return linted{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	staged, err := unpackFile(ctx, file, temp)
	var refused *archive.Refusal
	if errors.As(err, &refused) {
		f := sandbox.Finding{Rule: "archive-" + string(refused.Reason), Severity: sandbox.SeverityError, File: refused.Entry, Message: err.Error()}
		return linted{Path: file, Findings: []sandbox.Finding{f}}, nil
	}
	if err != nil {
		return linted{}, err
	}
	text, err := os.ReadFile(filepath.Join(staged.Dir, "SKILL.md"))
	if err != nil {
		return linted{}, err
	}
	name, err := format.NameOf(staged.Wrapper, text)
	if err != nil {
		name = strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	}
	return lintNamed(ctx, staged.Dir, file, name)
}

func unpackFile(ctx context.Context, file, temp string) (*archive.Staged, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return archive.Unpack(ctx, f, info.Size(), temp, archive.DefaultLimits())
}

// packed is a skill that was packed.
type packed struct {
	Name     string            `json:"name"`
	File     string            `json:"file"`
	Bytes    int               `json:"bytes"`
	Digest   string            `json:"digest"`
	Findings []sandbox.Finding `json:"findings"`
}

func newSkillsPack(api *client.Client) *cobra.Command {
	var file string
	var force, lenient bool
	cmd := &cobra.Command{
		Use: "pack FOLDER", Short: "Make a .skill archive that installs elsewhere",
		Long: "Packs a skill's folder into NAME.skill in the current folder. The same files give the same archive. Caches, .git, node_modules and the\n" +
			"evals/ at the top are left out. A skill with errors (see `skills lint`) is not packed, unless with --lenient; what\n" +
			"no server would install is never packed. No server is needed.",
		Example: "  skerry skills pack my-skill\n  skerry skills pack my-skill --output dist/my-skill.skill --force",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), localTime)
			defer cancel()
			p, err := pack(ctx, args[0], file, force, lenient)
			if err != nil {
				return skillFailed(err)
			}
			if api.JSON {
				return output.JSON(cmd.OutOrStdout(), p)
			}
			showFindings(cmd.ErrOrStderr(), args[0], p.Findings)
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s  %d bytes  %s\n", p.File, p.Bytes, p.Digest)
			return err
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "file to write (default: NAME.skill)")
	cmd.Flags().BoolVar(&force, "force", false, "overwrite the file when it is there")
	cmd.Flags().BoolVar(&lenient, "lenient", false, "pack also what does not keep to the standard")
	return cmd
}

func pack(ctx context.Context, dir, output string, force, lenient bool) (packed, error) {
	checked, err := lintFolder(ctx, dir, dir)
	if err != nil {
		return packed{}, err
	}
	if !checked.OK && !lenient {
		var text strings.Builder
		showFindings(&text, dir, checked.Findings)
		return packed{}, sandbox.Errorf(sandbox.Invalid, "%s has errors and is not packed (--lenient packs it all the same):\n%s", dir, strings.TrimSuffix(text.String(), "\n"))
	}
	var buf bytes.Buffer
	if err := archive.Pack(ctx, &buf, dir, checked.Name, archive.DefaultLimits()); err != nil {
		return packed{}, err
	}
	digest, err := digestOf(ctx, buf.Bytes())
	if err != nil {
		return packed{}, err
	}
	if output == "" {
		output = checked.Name + ".skill"
	}
	return packed{checked.Name, output, buf.Len(), digest, checked.Findings}, writeNew(output, buf.Bytes(), force)
}

// digestOf unpacks what was packed: a proof that it installs, and the digest that it will have.
func digestOf(ctx context.Context, raw []byte) (_ string, err error) {
	temp, err := os.MkdirTemp("", "skerry-pack-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	staged, err := archive.Unpack(ctx, bytes.NewReader(raw), int64(len(raw)), temp, archive.DefaultLimits())
	if err != nil {
		return "", err
	}
	return format.Digest(os.DirFS(staged.Dir))
}

// writeNew writes a file whole or not at all; it keeps an existing file unless force.
func writeNew(file string, data []byte, force bool) error {
	write := lockedfile.Create
	if force {
		write = lockedfile.ReplaceAs
	}
	err := write(file, data, 0o644)
	switch {
	case errors.Is(err, fs.ErrExist):
		return sandbox.Errorf(sandbox.Conflict, "%s is there already; --force overwrites it", file)
	case err != nil:
		return fmt.Errorf("%s cannot be written: %w", argform.Line(file, 200), err)
	}
	return nil
}
