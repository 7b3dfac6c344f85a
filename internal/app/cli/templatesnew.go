package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
)

func newTemplatesNew(api *client.Client) *cobra.Command {
	var image, parent, dir string
	var pip []string
	cmd := &cobra.Command{
		Use: "new NAME", Short: "Write a template to begin with", Args: exit.Arguments(cobra.ExactArgs(1)),
		Example: "  skerry templates new reports --pip pandas==2.3.3 --pip tabulate\n  skerry templates new reports --image registry.example/reports:3\n  skerry templates lint reports.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(pip) > 0 {
				if image == "" {
					image = "skerry/" + args[0] + ":latest"
				}
				if err := buildWithPackages(cmd, image, "skerry/"+parent+":latest", pip); err != nil {
					return err
				}
			}
			file := filepath.Join(dir, args[0]+".yaml")
			text := fmt.Sprintf("name: %s\ndescription: What agents read when they choose\nextends: %s           # what is not said here is as there\n", args[0], parent)
			if image != "" {
				text += fmt.Sprintf("image: {docker: %q}\n", image)
			}
			text += "# limits: {memory: 2GiB}  # skerry's documents (templates) have all keys\n"
			f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // others may read it
			if errors.Is(err, os.ErrExist) {
				return exit.With(exit.Usage, "%s is there already", file)
			}
			if err != nil {
				return err
			}
			_, err = f.WriteString(text)
			if err = errors.Join(err, f.Close()); err != nil {
				return err
			}
			if _, err := lintTemplates(file); err != nil {
				return errors.Join(exit.With(exit.Usage, "%w", err), os.Remove(file))
			}
			return api.Say(cmd, map[string]any{"file": file, "image": image}, file+" is written; the server reads the folder that `templates:` names at its start")
		},
	}
	cmd.Flags().StringArrayVar(&pip, "pip", nil, "build an image with this package of PyPI, such as pandas==2.3.3; it needs Docker; may be given many times")
	cmd.Flags().StringVar(&image, "image", "", "image of its own, for docker (default: that of the template it extends)")
	cmd.Flags().StringVar(&parent, "extends", "base", "template that it is made from")
	cmd.Flags().StringVar(&dir, "dir", ".", "folder to write it into")
	return cmd
}

// requirement is a package of PyPI, with extras and versions: no option of pip, and no address.
var requirement = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._,-]+\])?([=<>!~]=?=?[A-Za-z0-9.*+!,<>=~-]+)?$`)

// buildTimeout bounds what Docker and pip may take.
const buildTimeout = time.Hour

// dockerfile is that of an image with packages more than another one.
func dockerfile(from string, packages []string) (string, error) {
	for _, p := range packages {
		if !requirement.MatchString(p) {
			return "", exit.With(exit.Usage, "--pip %q: write a package, such as pandas or pandas==2.3.3", p)
		}
	}
	argv, err := json.Marshal(append([]string{"python3", "-m", "pip", "install", "--no-cache-dir", "--break-system-packages"}, packages...))
	return fmt.Sprintf("FROM %s\nUSER root\nRUN %s\n", from, argv), err
}

// buildWithPackages builds an image by the Docker of this machine.
func buildWithPackages(cmd *cobra.Command, image, from string, packages []string) error {
	text, err := dockerfile(from, packages)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), buildTimeout)
	defer cancel()
	build := exec.CommandContext(ctx, "docker", "build", "-t", image, "-")
	build.Stdin, build.Stdout, build.Stderr = strings.NewReader(text), cmd.ErrOrStderr(), cmd.ErrOrStderr()
	if err := build.Run(); err != nil {
		return fmt.Errorf("docker build of %s: %w", image, err)
	}
	return nil
}
