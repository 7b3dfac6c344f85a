package cli

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	"github.com/skerry-sandbox/skerry/internal/secrets"
)

func newSecrets(api *client.Client) *cobra.Command {
	cmd := &cobra.Command{
		Use: "secrets", Short: "Set, list and delete secrets; none is ever shown",
		Long: "Sets, lists and deletes secrets: values by name for MCP servers (${secret:NAME}) and for the environment of one exec.\nNo value is ever shown again.",
	}
	cmd.AddCommand(newSecretSet(api), newSecretRemove(api), newSecretRotate(api),
		&cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List names, scopes, sources, who changed them when, and when they were used last", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			return api.Table(cmd, "/api/secrets", []string{"name", "scope", "source", "exec", "changed_at", "changed_by", "last_used_at"})
		}},
	)
	return cmd
}

// secretScope is the scope that flags choose.
type secretScope struct {
	tenant        bool
	server, skill string
}

func (s *secretScope) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&s.tenant, "tenant", false, "of the whole tenant (administrators); without any of these it is your own")
	cmd.Flags().StringVar(&s.server, "for-server", "", "of connections to this MCP server (administrators)")
	cmd.Flags().StringVar(&s.skill, "for-skill", "", "of runs of this public skill's scripts, or of NAME@DIGEST (administrators)")
	cmd.MarkFlagsMutuallyExclusive("tenant", "for-server", "for-skill")
}

// path is that of the API for a name.
func (s *secretScope) path(name string) string {
	scope := secrets.ScopeUser
	switch {
	case s.tenant:
		scope = secrets.ScopeTenant
	case s.server != "":
		scope = secrets.ScopeServer + "/" + s.server
	case s.skill != "":
		scope = secrets.ScopeSkill + "/" + s.skill
	}
	return "/api/secrets/" + url.PathEscape(name) + "?scope=" + url.QueryEscape(scope)
}

func newSecretSet(api *client.Client) *cobra.Command {
	var scope secretScope
	var exec bool
	cmd := &cobra.Command{
		Use: "set NAME", Short: "Store a secret from standard input, or asked for without echo",
		Long:    "Stores a secret. Its value is read from standard input, or asked for without echo when that is a terminal. One newline at the end is not part of it.",
		Example: "  skerry secrets set GITHUB_TOKEN\n  skerry secrets set CRM_TOKEN --tenant < token.txt\n  vault read -field=v kv/crm | skerry secrets set CRM_TOKEN --for-server crm",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("name the secret, and nothing else: its value comes from standard input, because arguments can be seen by others")
			}
			if err := secrets.CheckName(args[0]); err != nil {
				return err
			}
			value, err := readSecret(cmd)
			if err != nil {
				return err
			}
			var info secrets.Info
			if err := api.Call(cmd.Context(), http.MethodPut, scope.path(args[0]), map[string]any{"value": value, "exec": exec}, &info); err != nil {
				return err
			}
			if api.JSON {
				return output.JSON(cmd.OutOrStdout(), info)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "stored %s (%s)\n", info.Name, info.Scope)
			return err
		},
	}
	scope.flags(cmd)
	cmd.Flags().BoolVar(&exec, "exec", false, "let it be in the environment of an exec that asks for it")
	return cmd
}

// readSecret reads a value without echo.
func readSecret(cmd *cobra.Command) (string, error) {
	in, ok := cmd.InOrStdin().(*os.File)
	if ok && term.IsTerminal(int(in.Fd())) {
		fmt.Fprint(cmd.ErrOrStderr(), "Value (not shown): ")
		raw, err := term.ReadPassword(int(in.Fd()))
		fmt.Fprintln(cmd.ErrOrStderr())
		return string(raw), err
	}
	raw, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), secrets.MaxBytes+3))
	return strings.TrimSuffix(strings.TrimSuffix(string(raw), "\n"), "\r"), err
}

func newSecretRemove(api *client.Client) *cobra.Command {
	var scope secretScope
	cmd := &cobra.Command{
		Use: "rm NAME", Short: "Delete a stored secret", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return api.Call(cmd.Context(), http.MethodDelete, scope.path(args[0]), nil, nil)
		},
	}
	scope.flags(cmd)
	return cmd
}

func newSecretRotate(api *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "rotate", Short: "Make a new key, and encrypt everything that is kept for it",
		Long: "Makes a new key, encrypts everything that is kept for it, and takes the old keys out of the key file. Cut off at any moment, it can be run again.\nKeep the old key file with old backups of the data: they need it.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var done secrets.Rotation
			if err := api.Call(cmd.Context(), http.MethodPost, "/api/secrets/rotate", map[string]any{}, &done); err != nil {
				return err
			}
			if api.JSON {
				return output.JSON(cmd.OutOrStdout(), done)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "there is a new key; %d values were encrypted for it\n", done.Renewed)
			return err
		},
	}
}
