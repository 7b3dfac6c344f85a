package profiles

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
)

const (
	defaultName = "default"
	maxKey      = 8 << 10
	tryTimeout  = 30 * time.Second
)

// Commands are login, logout and use.
func Commands(api *client.Client) []*cobra.Command {
	return []*cobra.Command{newLogin(api), newLogout(api), newUse(api)}
}

func newLogin(api *client.Client) *cobra.Command {
	name := ""
	cmd := &cobra.Command{
		Use: "login [SERVER]", Short: "Keep a server's address and your key in a profile, and use it from now on", Args: exit.Arguments(cobra.MaximumNArgs(1)),
		Long: "Asks for your key, tries it, and keeps it with the server's address in a profile: a file that only you can read. " +
			"Later commands use the profile, unless --server, --profile or the environment say otherwise. The key is read from standard input when that is no terminal.",
		Example: "  skerry login https://skerry.example.com\n  skerry login --name ci https://skerry.example.com < key.txt\n  skerry use default",
		RunE: func(cmd *cobra.Command, args []string) error {
			name = cmp.Or(name, api.Profile, defaultName)
			if err := client.CheckProfileName(name); err != nil {
				return exit.As(exit.Usage, err)
			}
			to := *api
			to.Key = ""
			if len(args) == 1 {
				var err error
				if to.Server, err = client.Address(args[0]); err != nil {
					return exit.As(exit.Usage, err)
				}
			}
			if f := cmd.Root().PersistentFlags().Lookup("api-key"); f != nil && f.Changed {
				to.Key = api.Key
			} else {
				var err error
				if to.Key, err = readKey(cmd, to.Server); err != nil {
					return err
				}
			}
			if err := try(cmd.Context(), &to); err != nil {
				return err
			}
			all, err := client.LoadProfiles()
			if err != nil {
				return err
			}
			all.All[name], all.Current = client.Profile{Server: to.Server, Key: to.Key}, name
			if err := all.Save(); err != nil {
				return err
			}
			return api.Say(cmd, map[string]any{"profile": name, "server": to.Server}, fmt.Sprintf("logged in at %s; the profile %s is in use", to.Server, name))
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "name of the profile (default: that of --profile, or "+defaultName+")")
	return cmd
}

// readKey asks for the key, without showing it. An empty one is for a server without keys.
func readKey(cmd *cobra.Command, server string) (string, error) {
	if in, ok := cmd.InOrStdin().(*os.File); ok && term.IsTerminal(int(in.Fd())) {
		fmt.Fprintf(cmd.ErrOrStderr(), "Key for %s (empty for a server without keys): ", server) //nolint:errcheck // the answer matters
		key, err := term.ReadPassword(int(in.Fd()))
		fmt.Fprintln(cmd.ErrOrStderr()) //nolint:errcheck // only a line end
		return strings.TrimSpace(string(key)), err
	}
	line, err := bufio.NewReader(io.LimitReader(cmd.InOrStdin(), maxKey)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return strings.TrimSpace(line), nil
}

// try calls something that every role but a pack's may.
func try(ctx context.Context, api *client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	return api.Call(ctx, http.MethodGet, "/api/audit?limit=1", nil, nil)
}

func newLogout(api *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "logout [PROFILE]", Short: "Forget a profile with its key; the key stays valid at the server", Args: exit.Arguments(cobra.MaximumNArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			all, err := client.LoadProfiles()
			if err != nil {
				return err
			}
			name := cmp.Or(strings.Join(args, ""), api.Profile, all.Current)
			if _, ok := all.All[name]; !ok {
				return exit.With(exit.NoTool, "there is no profile %q", name)
			}
			delete(all.All, name)
			if all.Current == name {
				all.Current = ""
			}
			return all.Save()
		},
	}
}

// listedProfile is one in the list. Its key is not shown.
type listedProfile struct {
	Name   string `json:"name"`
	Server string `json:"server"`
	Used   bool   `json:"used"`
}

func newUse(api *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "use [PROFILE]", Short: "Choose the profile that commands use, or list the profiles", Args: exit.Arguments(cobra.MaximumNArgs(1)),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			all, err := client.LoadProfiles()
			if err != nil {
				return nil, cobra.ShellCompDirectiveError
			}
			return slices.Sorted(maps.Keys(all.All)), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := client.LoadProfiles()
			if err != nil {
				return err
			}
			if len(args) == 1 {
				if _, ok := all.All[args[0]]; !ok {
					return exit.With(exit.NoTool, "there is no profile %q: `skerry login --name %s SERVER` makes one", args[0], args[0])
				}
				all.Current = args[0]
				return all.Save()
			}
			list := []listedProfile{}
			for _, name := range slices.Sorted(maps.Keys(all.All)) {
				list = append(list, listedProfile{name, all.All[name].Server, name == all.Current})
			}
			if api.JSON {
				return output.JSON(cmd.OutOrStdout(), list)
			}
			for _, p := range list {
				mark := " "
				if p.Used {
					mark = "*"
				}
				if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s  %s\n", mark, p.Name, p.Server); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
